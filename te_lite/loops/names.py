"""Names of a program as identifiers of C, C++ and CUDA C++, which collide with nothing that is there already.

Every name that a user may choose (tensors, axes, functions) becomes text through `Names`: it keeps its letters where an
identifier may have them, and gets a number behind it where the result is reserved or taken.  Reserved are keywords,
what the compilers predefine, what the headers of our sources declare (math, stdlib, stdio, time, stdint), the functions
and types of CUDA, and the names that our own text uses.
"""

from __future__ import annotations

import re

_KEYWORDS = (
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char class co_await co_return co_yield "
    "compl concept const const_cast consteval constexpr constinit continue decltype default defined delete do double "
    "dynamic_cast else enum explicit export extern false float for friend goto if import inline int long main module "
    "mutable namespace new noexcept noreturn not not_eq nullptr operator or or_eq private protected public register "
    "reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast struct switch "
    "template this thread_local throw true try typedef typeid typename typeof typeof_unqual union unsigned using "
    "virtual void volatile while xor xor_eq"
)
_PREDEFINED = "linux unix i386 arm sun mips hpux sgi vax m68k sparc near far L_ctermid L_tmpnam P_tmpdir"
_MATH = (
    "abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh drem erf erfc exp exp2 exp10 expm1 fabs "
    "fdim finite floor fma fmax fmin fmod fpclassify frexp gamma hypot ilogb isfinite isgreater isgreaterequal isinf "
    "isless islessequal islessgreater isnan isnormal isunordered j0 j1 jn ldexp lgamma llrint llround log log10 log1p "
    "log2 logb lrint lround math_errhandling max min modf nan nearbyint nextafter nexttoward pow remainder remquo rint "
    "round roundeven scalb scalbln scalbn signbit signgam significand sin sincos sinh sqrt tan tanh tgamma trunc y0 y1 "
    "yn cospi cyl_bessel_i0 cyl_bessel_i1 erfcinv erfcx erfinv fdivide norm norm3d norm4d normcdf normcdfinv rcbrt "
    "rhypot rnorm rnorm3d rnorm4d rsqrt saturate sincospi sinpi ullmax ullmin umax umin llmax llmin"
)
_LIBRARY = (
    "a64l abort alloca arc4random asctime asctime_r asprintf at_quick_exit atexit atof atoi atol atoll bsearch calloc "
    "clearenv clearerr clock clock_getcpuclockid clock_getres clock_gettime clock_nanosleep clock_settime ctermid "
    "ctime ctime_r cuserid daylight difftime div dprintf drand48 dysize ecvt environ erand48 errno exit fclose fcvt "
    "fdopen feof ferror fflush fgetc fgetpos fgets fileno flockfile fmemopen fopen fprintf fputc fputs fread free "
    "freopen fscanf fseek fseeko fsetpos ftell ftello ftrylockfile funlockfile fwrite gcvt getc getchar getdate "
    "getdelim getenv getline getloadavg getsubopt getw gmtime gmtime_r index initstate jrand48 l64a labs lcong48 ldiv "
    "llabs lldiv localtime localtime_r lrand48 malloc mblen mbstowcs mbtowc memchr memcmp memcpy memmove memset "
    "mkdtemp mkstemp mktemp mktime mrand48 nanosleep nrand48 offsetof on_exit open_memstream pclose perror popen "
    "posix_memalign printf pselect putc putchar putenv puts putw qecvt qfcvt qgcvt qsort quick_exit rand rand_r "
    "random realloc reallocarray realpath remove rename renameat rewind rindex rpmatch scanf seed48 select setbuf "
    "setbuffer setenv setlinebuf setstate setvbuf snprintf sprintf srand srand48 srandom sscanf stderr stdin stdout "
    "stime strcat strchr strcmp strcpy strftime strlen strncmp strncpy strtod strtof strtol strtold strtoll strtoq "
    "strtoul strtoull system tempnam time timegm timelocal timespec timespec_get timeval timezone tm tmpfile tmpnam "
    "tzname tzset ungetc unsetenv valloc vasprintf vdprintf vfprintf vfscanf vprintf vscanf vsnprintf vsprintf "
    "vsscanf wcstombs wctomb"
)
_CUDA = (
    "assert blockDim blockIdx clock64 cooperative_groups cuda device dim3 global gridDim half host "
    "nv_bfloat16 printf shared std surf texture threadIdx trap uchar uint ulong ulonglong ushort warpSize"
)
_OURS = "SHUFFLE VEC call number scratch shared_memory start steps stop"
RESERVED = frozenset(" ".join((_KEYWORDS, _PREDEFINED, _MATH, _LIBRARY, _CUDA, _OURS)).split())

_DTYPE = r"[bfiu](8|16|32|64)"
_SHAPES = re.compile(
    r"_[_A-Z].*"  # reserved for compilers
    r"|(?=([A-Z0-9_]*[A-Z]){3})[A-Z0-9_]+|M_\w+"  # macros: three capitals and more, no small letter
    r"|.*_(t|unlocked|seconds)"  # types and functions of headers, our timers
    r"|u?(char|short|int|long|longlong|float|double|half)[1-4]?"
    r"|(make|copy_async|emu|omp|EMU)_\w*|copy_async|atomic[A-Z]\w*|(tex|surf)[123]D\w*"
    rf"|[a-z]+\d?_{_DTYPE}(x\d+)?|f(32|64)_to_{_DTYPE}"  # our helper functions
    rf"|{_DTYPE}x\d+(_to_.*)?|(load|store)\d+_.*"  # our vector types, and what reads and writes them
    r"|step_\d+|network_(run|seconds)"  # drivers of networks
)
_FUNCTIONS = frozenset(_MATH.split())


def is_reserved(name: str) -> bool:
    """Whether an identifier has a meaning somewhere in C, C++, CUDA C++, their libraries, or in our own text."""
    if name in RESERVED or (name[-1] in "fl" and name[:-1] in _FUNCTIONS):
        return True
    return _SHAPES.fullmatch(name) is not None


def identifier(name: str) -> str:
    """`name` with everything a C identifier cannot hold replaced by `_`."""
    text = "".join(ch if ch.isascii() and (ch.isalnum() or ch == "_") else "_" for ch in name) or "_"
    return f"_{text}" if text[0].isdigit() else text


class Names:
    """Gives every object a C identifier of its own, close to the name it carries."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._of: dict[int, str] = {}
        self._keep: list[object] = []

    def fresh(self, name: str) -> str:
        """An identifier that nobody else has, and that means nothing yet."""
        base = identifier(name)
        if is_reserved(f"{base}_1"):  # by how it begins
            base = f"v_{base}"
        text, k = base, 0
        while text in self._taken or is_reserved(text):
            k += 1
            text = f"{base}_{k}"
        self._taken.add(text)
        return text

    def of(self, item: object, name: str) -> str:
        """The identifier of `item` (by identity), made from `name` when it is first asked for."""
        if id(item) not in self._of:
            self._of[id(item)] = self.fresh(name)
            self._keep.append(item)
        return self._of[id(item)]
