"""Write the table of operators: gen.py HEADER OUTPUT. A table that is the same is left as it is."""

import re
import sys
from pathlib import Path

header, output = map(Path, sys.argv[1:])
names = re.findall(r"^(?:void|int) (\w+)\(", header.read_text(), re.MULTILINE)
rows = "".join(f'    "{name}",\n' for name in sorted(names))
text = f"#include <ATen/Functions.h>\n\nnamespace at {{\n\nconst char* const operators[] = {{\n{rows}    nullptr,\n}};\n\n}}  // namespace at\n"
output.parent.mkdir(parents=True, exist_ok=True)
if not output.is_file() or output.read_text() != text:
    output.write_text(text)
