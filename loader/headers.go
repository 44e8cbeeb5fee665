package loader

import (
	"bytes"

	"github.com/heftai/heft/meta"
)

// A FileHead is the beginning of a safetensors file stored elsewhere, such as on a hub.
type FileHead struct {
	Name  string // base name of the file
	Size  int64  // size of the whole file in bytes
	Bytes []byte // its first bytes: at least the header's length and the header
}

// Headers are the tensors of files whose headers alone were read. They implement
// [meta.CheckpointHeader], so that a skeleton can be built and planned. No tensor can be read. All
// methods may be called from many goroutines.
type Headers struct{ joined Checkpoint }

// ReadHeaders reads heads as [Open] reads the headers of files, with the same checks. index is the
// contents of model.safetensors.index.json, which decides in which file a tensor is that several files
// have; nil if there is none. The error is an *Error.
func ReadHeaders(heads []FileHead, index []byte) (*Headers, error) {
	var weights map[string]string
	if index != nil {
		var err error
		if weights, err = parseIndex(index); err != nil {
			return nil, err
		}
	}
	h := &Headers{}
	headers := make([]*header, len(heads))
	for i, head := range heads {
		f := &File{Name: head.Name, Size: head.Size}
		var err error
		if headers[i], err = readHeader(bytes.NewReader(head.Bytes), head.Size); err != nil {
			return nil, inFile(err, f)
		}
		h.joined.files = append(h.joined.files, f)
	}
	if err := crossCheck(h.joined.files, headers); err != nil {
		return nil, err
	}
	if err := h.joined.join(headers, weights); err != nil {
		return nil, err
	}
	return h, nil
}

// Tensor returns the shape and dtype of the tensor called name. The shape is not to be
// changed.
func (h *Headers) Tensor(name string) (shape []int, dtype meta.DType, ok bool) {
	return h.joined.Tensor(name)
}

// Len returns the number of tensors.
func (h *Headers) Len() int { return h.joined.Len() }

// Bytes returns what all tensors take, in bytes.
func (h *Headers) Bytes() int64 { return h.joined.Bytes() }
