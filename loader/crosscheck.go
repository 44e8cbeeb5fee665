package loader

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/nlpodyssey/safetensors"
)

// crossChecked is the number of header bytes that are read a second time for each checkpoint.
// That costs about 50 ns per byte. A reader with a defect most likely fails on the first file.
const crossChecked = 128 << 10

// crossCheck reads headers a second time with nlpodyssey/safetensors and returns an error if that
// finds other tensors. If that package rejects a header, as it does for 8-bit floats, its result
// is ignored: our reader follows the reference exactly.
func crossCheck(files []*File, headers []*header) error {
	left := crossChecked
	for i, h := range headers {
		if left -= len(h.text); left >= 0 {
			if err := agree(h); err != nil {
				return &Error{File: files[i].label(), Reason: err.Error()}
			}
		}
		h.text = nil
	}
	return nil
}

func agree(h *header) error {
	var other safetensors.Metadata
	if json.Unmarshal(h.text, &other) != nil {
		return nil
	}
	infos := other.Tensors()
	if len(infos) != len(h.tensors) {
		return fmt.Errorf("two readers of the header disagree: got %d and %d tensors", len(h.tensors), len(infos))
	}
	var base uint64
	if len(h.tensors) > 0 {
		base = uint64(h.tensors[0].Offset)
	}
	for i := range h.tensors {
		t := &h.tensors[i]
		info := infos[t.Name]
		same := info != nil && info.DType.String() == t.DType.Safetensors() &&
			info.DataOffsets[0]+base == uint64(t.Offset) && info.DataOffsets[1]-info.DataOffsets[0] == uint64(t.Size) &&
			slices.EqualFunc(info.Shape, t.Shape, func(a uint64, b int) bool { return a == uint64(b) || a > uint64(b) && t.Size == 0 })
		if !same {
			return fmt.Errorf("two readers of the header disagree about tensor %s", printable(t.Name))
		}
	}
	return nil
}
