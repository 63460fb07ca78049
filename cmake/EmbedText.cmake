# Writes a C++ source that holds files: cmake -DOUTPUT=… -DHEADER=… -DNAMESPACE=… -DFUNCTION=… -DFILES=a,b -P EmbedText.cmake
string(REPLACE "," ";" files "${FILES}")
set(literals "")
foreach(file ${files})
  file(READ ${file} text)
  string(APPEND literals "    R\"kvern_file(${text})kvern_file\",\n")
endforeach()
file(WRITE ${OUTPUT}
"#include \"${HEADER}\"

namespace ${NAMESPACE} {

std::span<const std::string_view> ${FUNCTION}() {
  static constexpr std::string_view kFiles[] = {
${literals}  };
  return kFiles;
}

}  // namespace ${NAMESPACE}
")
