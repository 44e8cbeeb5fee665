// AVX2: steps of layers with a state.
#define WIDTH 32
#define F(name) avx2##name
#include "recurrent.h"
