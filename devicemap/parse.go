package devicemap

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseMaxMemory reads "DEVICE=SIZE,DEVICE=SIZE", as in "0=20GiB,cpu=30GiB", in the
// order given. A size is as ParseSize takes it, or a plain number of bytes.
func ParseMaxMemory(text string) ([]Memory, error) {
	var list []Memory
	for item := range strings.SplitSeq(text, ",") {
		name, amount, ok := strings.Cut(item, "=")
		if !ok {
			return nil, fmt.Errorf("devicemap: %q in the memory list: want DEVICE=SIZE, like cpu=30GiB", item)
		}
		d, err := ParseDevice(name)
		if err != nil {
			return nil, fmt.Errorf("%w, in %q", err, item)
		}
		for _, m := range list {
			if m.Device == d {
				return nil, fmt.Errorf("devicemap: device %s stands twice in the memory list", d)
			}
		}
		amount = strings.TrimSpace(amount)
		bytes, err := strconv.ParseInt(amount, 10, 64)
		if err != nil {
			bytes, err = ParseSize(amount)
		}
		if err == nil && bytes < 0 {
			err = sizeError(amount, "it is negative")
		}
		if err != nil {
			return nil, fmt.Errorf("%w, in %q", err, item)
		}
		list = append(list, Memory{d, float64(bytes)})
	}
	return list, nil
}
