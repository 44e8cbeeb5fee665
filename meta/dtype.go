package meta

import "fmt"

// DType is the type of a tensor's elements, with torch's names.
type DType uint8

// The dtypes in checkpoints. The zero value is no dtype.
const (
	NoDType DType = iota
	Float64
	Float32
	Float16
	BFloat16
	Int64
	Int32
	Int16
	Int8
	Uint64
	Uint32
	Uint16
	Uint8
	Bool
	Float8E4M3
	Float8E5M2
	Float8E8M0
	Float8E4M3FNUZ
	Float8E5M2FNUZ
	Float4E2M1 // one element; torch packs two in a byte
	Float6E2M3
	Float6E3M2
	Complex64
)

var dtypes = [...]struct {
	torch, safetensors string
	bits               int
}{
	NoDType:        {"", "", 0},
	Float64:        {"float64", "F64", 64},
	Float32:        {"float32", "F32", 32},
	Float16:        {"float16", "F16", 16},
	BFloat16:       {"bfloat16", "BF16", 16},
	Int64:          {"int64", "I64", 64},
	Int32:          {"int32", "I32", 32},
	Int16:          {"int16", "I16", 16},
	Int8:           {"int8", "I8", 8},
	Uint64:         {"uint64", "U64", 64},
	Uint32:         {"uint32", "U32", 32},
	Uint16:         {"uint16", "U16", 16},
	Uint8:          {"uint8", "U8", 8},
	Bool:           {"bool", "BOOL", 8},
	Float8E4M3:     {"float8_e4m3fn", "F8_E4M3", 8},
	Float8E5M2:     {"float8_e5m2", "F8_E5M2", 8},
	Float8E8M0:     {"float8_e8m0fnu", "F8_E8M0", 8},
	Float8E4M3FNUZ: {"float8_e4m3fnuz", "F8_E4M3FNUZ", 8},
	Float8E5M2FNUZ: {"float8_e5m2fnuz", "F8_E5M2FNUZ", 8},
	Float4E2M1:     {"float4_e2m1fn_x2", "F4", 4},
	Float6E2M3:     {"float6_e2m3fn", "F6_E2M3", 6},
	Float6E3M2:     {"float6_e3m2fn", "F6_E3M2", 6},
	Complex64:      {"complex64", "C64", 64},
}

// String returns torch's name without "torch.".
func (d DType) String() string {
	if int(d) < len(dtypes) && d != NoDType {
		return dtypes[d].torch
	}
	return fmt.Sprintf("dtype(%d)", uint8(d))
}

// Safetensors returns d's name in a safetensors header.
func (d DType) Safetensors() string {
	if int(d) < len(dtypes) {
		return dtypes[d].safetensors
	}
	return ""
}

// Bits returns the size of one element in memory, in bits.
func (d DType) Bits() int {
	if int(d) < len(dtypes) {
		return dtypes[d].bits
	}
	return 0
}

// Bytes returns the memory of n elements in bytes, rounded up.
func (d DType) Bytes(n int64) int64 { return (n*int64(d.Bits()) + 7) / 8 }

// Float reports whether d is a floating-point type.
func (d DType) Float() bool {
	switch d {
	case Float64, Float32, Float16, BFloat16, Float8E4M3, Float8E5M2, Float8E8M0,
		Float8E4M3FNUZ, Float8E5M2FNUZ, Float4E2M1, Float6E2M3, Float6E3M2:
		return true
	}
	return false
}

// ParseDType parses a torch name ("bfloat16", "torch.bfloat16") or a common short name ("float",
// "half", "bf16").
func ParseDType(name string) (DType, error) {
	if len(name) > 6 && name[:6] == "torch." {
		name = name[6:]
	}
	switch name {
	case "float", "fp32", "f32":
		return Float32, nil
	case "half", "fp16", "f16":
		return Float16, nil
	case "bf16":
		return BFloat16, nil
	case "double":
		return Float64, nil
	}
	for d := range dtypes {
		if d != 0 && dtypes[d].torch == name {
			return DType(d), nil
		}
	}
	return NoDType, fmt.Errorf("meta: unknown dtype %q", name)
}

// SafetensorsDType returns the dtype with the given name in a safetensors header.
func SafetensorsDType(name string) (DType, bool) {
	for d := range dtypes {
		if d != 0 && dtypes[d].safetensors == name {
			return DType(d), true
		}
	}
	return NoDType, false
}
