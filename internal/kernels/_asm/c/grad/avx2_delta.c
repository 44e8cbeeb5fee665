// AVX2: gradients of layers with a state.
#define WIDTH 32
#define F(name) avx2##name
#include "common.h"
#include "folds.h"
#include "deltagrad.h"
