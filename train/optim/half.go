package optim

import "github.com/heftai/heft/internal/floats"

// BFloat16 rounds x to the nearest bfloat16, ties to even.
func BFloat16(x float32) float32 { return floats.RoundBFloat16(x) }

// Float16 rounds x to the nearest IEEE half, ties to even. Values from 65520 up become infinite.
func Float16(x float32) float32 { return floats.RoundFloat16(x) }

// Float16Bits returns the bits of x as an IEEE half, rounded as [Float16] does.
func Float16Bits(x float32) uint16 { return floats.ToFloat16(x) }
