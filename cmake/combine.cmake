# cmake -DROOT=... -DSOURCES=... -DOUTPUT=... -P combine.cmake: writes one file that has the text of several.
# What the anonymous namespace of a file hides gets a namespace named after the file, so that files
# need not know of each other's helpers.
set(text "")
foreach(source ${SOURCES})
  get_filename_component(name ${source} NAME_WE)
  file(READ ${source} content)
  string(REPLACE "\nnamespace {\n" "\nnamespace ${name} {\n" content "${content}")
  file(RELATIVE_PATH place ${ROOT} ${source})
  string(APPEND text "#line 1 \"${place}\"\n${content}\n")
endforeach()
file(WRITE ${OUTPUT} "${text}")
