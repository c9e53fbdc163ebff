#include "kernels/panels/panel_code.h"

namespace millrace::kernels {

const PanelLoops& panel_loops_avx2() {
  static constexpr PanelLoops kLoops = panel_code::make_panel_loops<8, 4>();
  return kLoops;
}

}  // namespace millrace::kernels
