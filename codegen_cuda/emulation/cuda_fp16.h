// The emulator's cuda.h, included before every kernel, has half and half2 already.
#pragma once
