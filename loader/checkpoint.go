package loader

import (
	"bytes"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/heftai/heft/meta"
)

// A Checkpoint holds the tensors of one or more files. All methods except Close are safe for
// concurrent use.
type Checkpoint struct {
	name     string // the requested name, for messages
	dir      string
	fsys     fs.FS // folder of the shards, or nil if only shards are known
	files    []*File
	tensors  []Tensor // by file, then by offset
	index    map[string]int32
	metadata map[string]string

	conventions meta.Conventions
	model       string // of a GGUF file: its name
	hashes      string // folder of stored hashes, or ""
}

// Tensor returns the shape and dtype of the tensor called name. It makes a Checkpoint a
// [meta.CheckpointHeader]. The caller must not modify the shape.
func (c *Checkpoint) Tensor(name string) (shape []int, dtype meta.DType, ok bool) {
	if i, found := c.index[name]; found {
		t := &c.tensors[i]
		return t.Shape, t.DType, true
	}
	return nil, meta.NoDType, false
}

// EqualTensors reports whether the tensors called a and b have the same dtype, shape and bytes. It
// reads them up to the first difference. Tensors that are missing or cannot be read are not equal.
func (c *Checkpoint) EqualTensors(a, b string) bool {
	x, okA := c.Lookup(a)
	y, okB := c.Lookup(b)
	if !okA || !okB || x.DType != y.DType || x.Format != y.Format || !slices.Equal(x.Shape, y.Shape) || x.Size != y.Size {
		return false
	}
	size := min(x.Size, 1<<20)
	p, q := make([]byte, size), make([]byte, size)
	for at := int64(0); at < x.Size; at += size {
		n := min(size, x.Size-at)
		if _, err := x.ReadAt(p[:n], at); err != nil {
			return false
		}
		if _, err := y.ReadAt(q[:n], at); err != nil || !bytes.Equal(p[:n], q[:n]) {
			return false
		}
	}
	return true
}

// Lookup returns the handle of the tensor called name.
func (c *Checkpoint) Lookup(name string) (*Tensor, bool) {
	i, ok := c.index[name]
	if !ok {
		return nil, false
	}
	return &c.tensors[i], true
}

// Len returns the number of tensors.
func (c *Checkpoint) Len() int { return len(c.tensors) }

// Names yields the names of all tensors in stored order: by file, then by offset.
func (c *Checkpoint) Names() iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range c.tensors {
			if !yield(c.tensors[i].Name) {
				return
			}
		}
	}
}

// Tensors yields the handles of all tensors in the order of Names.
func (c *Checkpoint) Tensors() iter.Seq[*Tensor] {
	return func(yield func(*Tensor) bool) {
		for i := range c.tensors {
			if !yield(&c.tensors[i]) {
				return
			}
		}
	}
}

// Files returns the files sorted by name. The caller must not modify the slice.
func (c *Checkpoint) Files() []*File { return c.files }

// Dir returns the folder of the files and of config.json, or "" for a checkpoint in memory.
func (c *Checkpoint) Dir() string { return c.dir }

// Name returns the name of the model: the base name of its folder, ORG/NAME in a hub cache, a
// GGUF file's name without its suffix, or the name given to a checkpoint in memory.
func (c *Checkpoint) Name() string {
	if c.dir == "" {
		return c.name
	}
	if c.model != "" {
		return c.model
	}
	dir, err := filepath.Abs(c.dir)
	if err != nil {
		dir = c.dir
	}
	for p := dir; p != filepath.Dir(p); p = filepath.Dir(p) {
		if rest, ok := strings.CutPrefix(filepath.Base(p), "models--"); ok {
			return strings.ReplaceAll(rest, "--", "/")
		}
	}
	return filepath.Base(dir)
}

// FS returns the folder of the files, with config.json and tokenizer.json, as a file system. It
// is the argument of [OpenFS], and empty after [OpenBytes].
func (c *Checkpoint) FS() fs.FS {
	switch {
	case c.fsys != nil:
		return c.fsys
	case c.dir != "":
		return os.DirFS(c.dir)
	}
	return nothing{}
}

// nothing is an empty file system.
type nothing struct{}

// Open implements fs.FS.
func (nothing) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// Format returns the format in which a tensor of a GGUF file stores codes, or meta.QuantNone. It
// makes c a [meta.FormatHeader].
func (c *Checkpoint) Format(name string) meta.QuantFormat {
	if t, ok := c.Lookup(name); ok {
		return t.Format
	}
	return meta.QuantNone
}

var _ meta.FormatHeader = (*Checkpoint)(nil)

// Conventions returns the differences between the tensors and those that transformers saves.
// [meta.New] calls it.
func (c *Checkpoint) Conventions() meta.Conventions { return c.conventions }

// Metadata returns the metadata of the first file, such as {"format": "pt"}. It may be nil.
func (c *Checkpoint) Metadata() map[string]string { return maps.Clone(c.metadata) }

// Bytes returns the size of all tensors in bytes.
func (c *Checkpoint) Bytes() int64 {
	var n int64
	for i := range c.tensors {
		n += c.tensors[i].Size
	}
	return n
}

// Verify calls [File.Verify] for all files and returns the first error.
func (c *Checkpoint) Verify() error {
	for _, f := range c.files {
		if err := f.Verify(); err != nil {
			return err
		}
	}
	return nil
}

// Unchanged calls [File.Unchanged] for the shards whose bytes were used in place, and returns the
// first error. Without an error it does not allocate, so it can be called after every pass.
func (c *Checkpoint) Unchanged() error {
	for _, f := range c.files {
		if f.mapping.Load() == nil {
			continue
		}
		if err := f.Unchanged(); err != nil {
			return err
		}
	}
	return nil
}

// FileAt returns the file whose mapped bytes contain address, such as that of a fault.
func (c *Checkpoint) FileAt(address uintptr) (*File, bool) {
	for _, f := range c.files {
		if f.holds(address) {
			return f, true
		}
	}
	return nil, false
}

// Close unmaps and closes all files. The checkpoint must not be in use. Afterwards its tensors
// fail with an error that wraps fs.ErrClosed. A second call does nothing.
func (c *Checkpoint) Close() error {
	var err error
	for _, f := range c.files {
		if e := f.close(); err == nil && e != nil {
			err = &Error{File: f.label(), Reason: "closing", Err: e}
		}
	}
	return err
}

// load opens the named files of a folder and joins their tensors. If several files have a tensor,
// weights says which file counts.
func load(from fileFolder, names []string, weights map[string]string) (*Checkpoint, error) {
	headers, files, err := readHeaders(from, names)
	c := &Checkpoint{name: from.label(), dir: from.dir(), files: files}
	if err == nil {
		err = crossCheck(files, headers)
	}
	if err == nil {
		err = c.join(headers, weights)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// headerReaders is the number of headers that are read at a time. Uncached headers wait for the
// disk.
const headerReaders = 8

// readHeaders opens the files and reads their headers. After an error it also returns the open
// files, so that the caller can close them.
func readHeaders(from fileFolder, names []string) ([]*header, []*File, error) {
	headers := make([]*header, len(names))
	opened := make([]*File, len(names))
	errs := make([]error, len(names))
	slots := make(chan struct{}, min(headerReaders, 4*runtime.GOMAXPROCS(0)))
	var wg sync.WaitGroup
	for i, name := range names {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			opened[i], headers[i], errs[i] = openHeader(from, name)
		})
	}
	wg.Wait()
	files := opened[:0]
	var first error
	for i, f := range opened {
		if f != nil {
			files = append(files, f)
		}
		if first == nil {
			first = errs[i]
		}
	}
	return headers, files, first
}

func openHeader(from fileFolder, name string) (*File, *header, error) {
	f, err := from.open(name)
	if err != nil {
		return nil, nil, err
	}
	h, err := readHeader(fileReader{f}, f.Size)
	if err != nil {
		return f, nil, inFile(err, f)
	}
	return f, h, nil
}

// inFile adds the file to an error about its header.
func inFile(err error, f *File) error {
	if e, ok := err.(*Error); ok && e.File == "" {
		named := *e
		named.File = f.label()
		return &named
	}
	return err
}

// join indexes the tensors of all headers by name.
func (c *Checkpoint) join(headers []*header, weights map[string]string) error {
	if len(headers) == 1 && headers[0].index != nil {
		h := headers[0]
		c.tensors, c.index, c.metadata = h.tensors, h.index, h.metadata
		for i := range c.tensors {
			c.tensors[i].File = c.files[0]
		}
		return nil
	}
	n := 0
	for _, h := range headers {
		n += len(h.tensors)
	}
	c.tensors = make([]Tensor, 0, n)
	c.index = make(map[string]int32, n)
	for i, h := range headers {
		for _, t := range h.tensors {
			t.File = c.files[i]
			at, twice := c.index[t.Name]
			if !twice {
				c.index[t.Name] = int32(len(c.tensors))
				c.tensors = append(c.tensors, t)
				continue
			}
			switch weights[t.Name] {
			case c.tensors[at].File.Name:
			case t.File.Name:
				c.tensors[at] = t
			default:
				return failf(t.File.label(), t.Name, "is also in %s, and no index says which file counts",
					printable(c.tensors[at].File.Name))
			}
		}
		if i == 0 {
			c.metadata = h.metadata
		}
	}
	return nil
}
