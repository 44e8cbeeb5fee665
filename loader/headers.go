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

// Headers holds the tensors of files of which only the headers were read. It implements
// [meta.CheckpointHeader], so that a skeleton can be built and planned. Tensors cannot be read.
// It is safe for concurrent use.
type Headers struct{ joined Checkpoint }

// ReadHeaders parses heads as [Open] parses the headers of files, with the same checks. index is
// the contents of model.safetensors.index.json, or nil; if several files have a tensor, it
// decides which one counts. The error is an *Error.
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

// Tensor returns the shape and dtype of the tensor called name. The caller must not modify the
// shape.
func (h *Headers) Tensor(name string) (shape []int, dtype meta.DType, ok bool) {
	return h.joined.Tensor(name)
}

// Len returns the number of tensors.
func (h *Headers) Len() int { return h.joined.Len() }

// Bytes returns the size of all tensors in bytes.
func (h *Headers) Bytes() int64 { return h.joined.Bytes() }
