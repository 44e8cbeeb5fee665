package tensor

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/heftai/heft/internal/floats"
	"github.com/heftai/heft/meta"
)

// Widen converts src, little-endian elements of dtype d, to float32. It reads float64, which it
// rounds, float32, float16, bfloat16, float8_e4m3fn, float8_e5m2 and float8_e8m0fnu; the others
// are an error, and so is src of another length than dst. It allocates nothing. It is for small
// tensors and for loading; kernels have faster loops.
func Widen(dst []float32, src []byte, d meta.DType) error {
	if want := d.Bytes(int64(len(dst))); int64(len(src)) != want {
		return fmt.Errorf("tensor: got %d bytes for %d elements of %v, want %d", len(src), len(dst), d, want)
	}
	switch d {
	case meta.Float64:
		for i := range dst {
			dst[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:])))
		}
	case meta.Float32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case meta.Float16:
		for i := range dst {
			dst[i] = floats.FromFloat16(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case meta.BFloat16:
		for i := range dst {
			dst[i] = floats.FromBFloat16(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case meta.Float8E4M3:
		widenBytes(dst, src, floats.FromE4M3)
	case meta.Float8E5M2:
		widenBytes(dst, src, floats.FromE5M2)
	case meta.Float8E8M0:
		widenBytes(dst, src, floats.FromE8M0)
	default:
		return fmt.Errorf("tensor: got elements of %v, want a floating-point dtype of 8 bits or more", d)
	}
	return nil
}

func widenBytes(dst []float32, src []byte, from func(byte) float32) {
	for i := range dst {
		dst[i] = from(src[i])
	}
}

// Narrow converts src to little-endian elements of dtype d, rounding to nearest, ties to even.
// It writes float64, float32, float16 and bfloat16; other dtypes are an error, and so is dst of
// another length than src. It allocates nothing.
func Narrow(dst []byte, src []float32, d meta.DType) error {
	if want := d.Bytes(int64(len(src))); int64(len(dst)) != want {
		return fmt.Errorf("tensor: got room of %d bytes for %d elements of %v, want %d", len(dst), len(src), d, want)
	}
	switch d {
	case meta.Float64:
		for i, v := range src {
			binary.LittleEndian.PutUint64(dst[8*i:], math.Float64bits(float64(v)))
		}
	case meta.Float32:
		for i, v := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
		}
	case meta.Float16:
		for i, v := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], floats.ToFloat16(v))
		}
	case meta.BFloat16:
		for i, v := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], floats.ToBFloat16(v))
		}
	default:
		return fmt.Errorf("tensor: got dtype %v, want float64, float32, float16 or bfloat16", d)
	}
	return nil
}
