package tune

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/heftai/heft/internal/kernels"
	"github.com/klauspost/cpuid/v2"
)

// A Key holds what a plan depends on.
type Key struct {
	Vendor    string `json:"vendor"` // vendor string of CPUID, such as AuthenticAMD
	Processor string `json:"processor"`
	Variant   string `json:"variant"` // of the kernels
	Threads   int    `json:"threads"` // rounded up to a power of two
}

// KeyOf returns the key of this processor for a variant and a number of compute threads. An empty
// variant stands for the best one. Neighbouring numbers of threads share a key: 3 and 4, 5 to 8
// and so on.
func KeyOf(variant string, threads int) Key {
	if variant == "" {
		variant = kernels.Names()[0]
	}
	c := &cpuid.CPU
	model := fmt.Sprintf("%s family %d model %d stepping %d", strings.Join(strings.Fields(c.BrandName), " "), c.Family, c.Model, c.Stepping)
	return Key{Vendor: c.VendorString, Processor: strings.TrimSpace(model), Variant: variant, Threads: 1 << bits.Len(uint(max(threads, 1)-1))}
}

// file returns the name of the key's file, which has only letters, digits and single dashes.
func (k Key) file() string {
	text := strings.ToLower(fmt.Sprintf("%s %s %s %d", k.Vendor, k.Processor, k.Variant, k.Threads))
	words := strings.FieldsFunc(text, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	return "fetch-" + strings.Join(words, "-") + ".json"
}
