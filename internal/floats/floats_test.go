package floats

import (
	"math"
	"testing"
)

// TestEveryHalfReturns: each of the 65536 numbers of a 16-bit format widens to a float32 that
// rounds back to it.
func TestEveryHalfReturns(t *testing.T) {
	for name, f := range map[string]struct {
		from func(uint16) float32
		to   func(float32) uint16
	}{"bfloat16": {FromBFloat16, ToBFloat16}, "float16": {FromFloat16, ToFloat16}} {
		for i := range 1 << 16 {
			x := f.from(uint16(i))
			if x != x {
				if back := f.from(f.to(x)); back == back {
					t.Fatalf("%s %04x: a NaN becomes %v", name, i, back)
				}
				continue
			}
			if back := f.to(x); back != uint16(i) {
				t.Fatalf("%s %04x is %v, which is %04x", name, i, x, back)
			}
		}
	}
}

// TestTiesGoToEven: a number in the middle of two goes to the one with an even last bit.
func TestTiesGoToEven(t *testing.T) {
	for _, c := range []struct{ got, want float32 }{
		{RoundBFloat16(1 + 0x1p-8), 1}, {RoundBFloat16(1 + 3*0x1p-8), 1 + 0x1p-6}, {RoundBFloat16(math.MaxFloat32), float32(math.Inf(1))},
		{RoundFloat16(1 + 0x1p-11), 1}, {RoundFloat16(1 + 3*0x1p-11), 1 + 0x1p-9}, {RoundFloat16(65519), 65504}, {RoundFloat16(65520), float32(math.Inf(1))},
		{RoundFloat16(0x1p-25), 0}, {RoundFloat16(3 * 0x1p-25), 0x1p-23}, {RoundFloat16(-0x1p-24), -0x1p-24},
	} {
		if c.got != c.want {
			t.Errorf("%v, want %v", c.got, c.want)
		}
	}
}

// TestRoundingIsNarrowingAndWidening: the direct way gives the numbers of the two steps.
func TestRoundingIsNarrowingAndWidening(t *testing.T) {
	for i := uint64(0); i < 1<<32; i += 65521 {
		x := math.Float32frombits(uint32(i))
		if x != x {
			continue
		}
		if got, want := RoundBFloat16(x), FromBFloat16(ToBFloat16(x)); math.Float32bits(got) != math.Float32bits(want) {
			t.Fatalf("bfloat16 of %v: %v, want %v", x, got, want)
		}
		if got, want := RoundFloat16(x), FromFloat16(ToFloat16(x)); math.Float32bits(got) != math.Float32bits(want) {
			t.Fatalf("float16 of %v: %v, want %v", x, got, want)
		}
	}
}

// TestEightBits: values from the definitions of the formats.
func TestEightBits(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want float32
	}{
		{"e4m3 0x7e", FromE4M3(0x7e), 448}, {"e4m3 0x38", FromE4M3(0x38), 1}, {"e4m3 0x01", FromE4M3(1), 0x1p-9}, {"e4m3 0xb9", FromE4M3(0xb9), -1.125},
		{"e5m2 0x7b", FromE5M2(0x7b), 57344}, {"e5m2 0x3c", FromE5M2(0x3c), 1}, {"e5m2 0x01", FromE5M2(1), 0x1p-16}, {"e5m2 0x7c", FromE5M2(0x7c), float32(math.Inf(1))},
		{"e8m0 127", FromE8M0(127), 1}, {"e8m0 0", FromE8M0(0), 0x1p-127}, {"e8m0 254", FromE8M0(254), 0x1p127},
	} {
		if c.got != c.want {
			t.Errorf("%s is %v, want %v", c.name, c.got, c.want)
		}
	}
	for _, x := range []float32{FromE4M3(0x7f), FromE4M3(0xff), FromE8M0(255)} {
		if x == x {
			t.Errorf("%v is no NaN", x)
		}
	}
}
