package devicemap

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/heftai/heft/meta"
)

// units are the suffixes of sizes, in the order in which they are tried. With bits set, a final
// lower-case b means bits.
var units = []struct {
	suffix string
	bytes  float64
	bits   bool
}{
	{"GIB", 1 << 30, false},
	{"MIB", 1 << 20, false},
	{"KIB", 1 << 10, false},
	{"GB", 1e9, true},
	{"MB", 1e6, true},
	{"KB", 1e3, true},
}

// ParseSize parses a size in bytes with a unit, as Accelerate's convert_file_size_to_int does.
// KB, MB and GB are decimal, KiB, MiB and GiB binary, in any case. A final lower-case b of kb, mb
// and gb means bits, so "1gb" is 125,000,000 bytes. The number may be anything that Python's
// float accepts: " 3 GB", "1e3MB", "1_0MB". A number without a unit, TB and negative sizes are
// errors.
func ParseSize(text string) (int64, error) {
	size, err := parseSize(text)
	if err != nil {
		return 0, fmt.Errorf("devicemap: %w", err)
	}
	return size, nil
}

func parseSize(text string) (int64, error) {
	upper := strings.ToUpper(text)
	for _, u := range units {
		if !strings.HasSuffix(upper, u.suffix) {
			continue
		}
		runes := []rune(text)
		number, ok := pythonFloat(string(runes[:len(runes)-len(u.suffix)]))
		if !ok || math.IsNaN(number) {
			return 0, sizeError(text, "want a number before the unit")
		}
		bytes := math.Trunc(number * u.bytes)
		if u.bits && strings.HasSuffix(text, "b") {
			bytes = math.Floor(bytes / 8)
		}
		if bytes < 0 {
			return 0, sizeError(text, "want at least 0")
		}
		if bytes >= math.MaxInt64 {
			return 0, sizeError(text, "want less than 8 EiB")
		}
		return int64(bytes), nil
	}
	return 0, sizeError(text, `want a number and one of the units KB, MB, GB, KiB, MiB, GiB, like "5.5GiB"`)
}

func sizeError(text, why string) error {
	return fmt.Errorf("got the size %q, %s", text, why)
}

// FormatSize formats a size for users: "1.50 GiB", "12.0 MiB", "980 B".
func FormatSize(bytes int64) string {
	sign, f := "", float64(bytes)
	if f < 0 {
		sign, f = "-", -f
	}
	if f < 1024 {
		return fmt.Sprintf("%s%.0f B", sign, f)
	}
	for _, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		f /= 1024
		if f < 1023.95 || unit == "TiB" {
			return fmt.Sprintf("%s%.*f %s", sign, decimals(f), f, unit)
		}
	}
	return ""
}

// decimals returns the number of decimals that keeps three digits.
func decimals(f float64) int {
	switch {
	case f < 9.995:
		return 2
	case f < 99.95:
		return 1
	}
	return 0
}

// pythonFloat parses text like Python's float(): surrounding white space, underscores between
// digits, infinities and NaN are allowed; hexadecimal is not.
func pythonFloat(text string) (float64, bool) {
	text = strings.TrimFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || '\x1c' <= r && r <= '\x1f'
	})
	var digits strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '_':
			if i == 0 || i+1 == len(text) || !isDigit(text[i-1]) || !isDigit(text[i+1]) {
				return 0, false
			}
			continue
		case c == 'x' || c == 'X' || c == 'p' || c == 'P':
			return 0, false
		}
		digits.WriteByte(c)
	}
	f, err := strconv.ParseFloat(digits.String(), 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// customDTypes are types that Accelerate has in addition to torch's, for quantised weights, in
// bytes per element.
var customDTypes = map[string]float64{"int2": 0.25, "int4": 0.5, "fp8": 1}

// DTypeByteSize returns the size of one element in bytes, as Accelerate's dtype_byte_size does:
// bool is 1/8, float4_e2m1fn_x2 is 0. In addition to torch's names it accepts "int2", "int4" and
// "fp8".
func DTypeByteSize(name string) (float64, error) {
	if size, ok := customDTypes[name]; ok {
		return size, nil
	}
	switch strings.TrimPrefix(name, "torch.") {
	case "complex32":
		return 4, nil
	case "complex128":
		return 16, nil
	}
	d, err := meta.ParseDType(name)
	if err != nil {
		return 0, fmt.Errorf("devicemap: unknown dtype %q", name)
	}
	return elementSize(d), nil
}

// elementSize returns the DTypeByteSize of a known type.
func elementSize(d meta.DType) float64 {
	switch d {
	case meta.Bool:
		return 1.0 / 8
	case meta.Float4E2M1:
		return 0 // Accelerate derives the bits from the name's last digits: 2 / 8
	}
	return float64(d.Bits()) / 8
}

// A sizing returns the bytes of the elements of a named tensor.
type sizing func(path string, d meta.DType, elements int64) float64

// countNothing is for tables of which only the names are used.
func countNothing(string, meta.DType, int64) float64 { return 0 }

// accelerateSizing counts like Accelerate's compute_module_sizes: a special dtype replaces the
// tensor's, dtype only shrinks it, and integers and bools keep their size.
func accelerateSizing(dtype string, special map[string]string) (sizing, error) {
	limit := math.Inf(1)
	if dtype != "" {
		var err error
		if limit, err = DTypeByteSize(dtype); err != nil {
			return nil, err
		}
	}
	sizes := make(map[string]float64, len(special))
	for path, name := range special {
		size, err := DTypeByteSize(name)
		if err != nil {
			return nil, fmt.Errorf("%w for %s", err, path)
		}
		sizes[path] = size
	}
	return func(path string, d meta.DType, elements int64) float64 {
		if len(sizes) > 0 {
			if size, ok := sizes[path]; ok {
				return float64(elements) * size
			}
		}
		size := elementSize(d)
		if shrinks(d) {
			size = min(size, limit)
		}
		return float64(elements) * size
	}, nil
}

// shrinks reports whether loading converts tensors of type d.
func shrinks(d meta.DType) bool { return d.Float() || d == meta.Complex64 }
