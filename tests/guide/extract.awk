# awk -v prefix=PATH -f extract.awk page.md
#
# Writes every ```cpp block that has a main() to PATH_1.cpp, PATH_2.cpp, … and prints these names.
# Errors of the compiler then point to the page.
/^```cpp/ { inside = 1; text = ""; first = NR + 1; next }
/^```/ && inside {
  inside = 0
  if (text !~ /int main\(/) next
  file = sprintf("%s_%d.cpp", prefix, ++count)
  printf "#line %d \"%s\"\n%s", first, FILENAME, text > file
  close(file)
  print file
  next
}
inside { text = text $0 "\n" }
