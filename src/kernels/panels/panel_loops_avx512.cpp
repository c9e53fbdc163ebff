#include "kernels/panels/panel_code.h"

namespace millrace::kernels {

const PanelLoops& panel_loops_avx512() {
  static constexpr PanelLoops kLoops = panel_code::make_panel_loops<16, 8>();
  return kLoops;
}

}  // namespace millrace::kernels
