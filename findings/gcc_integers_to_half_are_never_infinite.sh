#!/usr/bin/env bash
# gcc 12.2 (-fexcess-precision=16, at -O0 and -O2), x86-64: differences of integers converted to _Float16.
#
# One would expect: an integer above 65,519 converted to _Float16 is infinite, and an infinity less an infinity is NaN.
# What happens: in one expression the difference is folded to 0.  gcc takes no conversion of an integer for infinite,
# which holds of float and double, and not of _Float16.  By way of float it is NaN, and so it is without the flag.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/half.c" <<'C'
#include <stdio.h>
__attribute__((noinline)) void at_once(long long x, _Float16 *y) { *y = (_Float16)x - (_Float16)x; }
__attribute__((noinline)) void by_float(long long x, _Float16 *y) { *y = (_Float16)(float)x - (_Float16)(float)x; }
int main(int count, char **words) {
  _Float16 once, way;
  at_once(1000000LL * count, &once);
  by_float(1000000LL * count, &way);
  printf("at once %g, by way of float %g\n", (float)once, (float)way);
  return 2 * (once == once) + (way == way);
}
C
gcc --version | head -1
for level in -O0 -O2; do
  for flag in -fexcess-precision=16 -fexcess-precision=fast; do
    gcc "$level" "$flag" "$folder/half.c" -o "$folder/half"
    found=0
    echo "$level $flag: $("$folder/half" || true)"
    "$folder/half" > /dev/null || found=$?
    test "$found" -eq $([ "$flag" = -fexcess-precision=16 ] && echo 2 || echo 0)
  done
done
