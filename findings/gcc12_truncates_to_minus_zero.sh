#!/usr/bin/env bash
# gcc 12.2.0 (-O2 -msse4.1 -fno-trapping-math), x86-64: a float cast to an integer and back.
#
# One would expect: (float)(int)-0.5f is 0.0f, for no integer is -0, so 1 / it is inf; signed zeros are kept, since
# -fno-signed-zeros is not given.
# What happens: gcc makes truncf(x) of it, which is -0.0f, and 1 / it is -inf.  With -ftrapping-math it is inf.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/cast.c" <<'C'
#include <stdio.h>
__attribute__((noinline)) float inverse(float x) { return 1.0f / (float)(int)x; }
int main(void) {
  volatile float x = -0.5f;
  printf("%g\n", inverse(x));
  return 0;
}
C
gcc --version | head -1
for flag in -ftrapping-math -fno-trapping-math; do
  gcc -O2 -msse4.1 "$flag" "$folder/cast.c" -o "$folder/cast"
  echo "$flag: $("$folder/cast")"
done | tee "$folder/said"
diff <(printf -- '-ftrapping-math: inf\n-fno-trapping-math: -inf\n') "$folder/said"
