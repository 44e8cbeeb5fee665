package loader

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/heftai/heft/meta"
)

const (
	offloadIndex = "index.json"
	datSuffix    = ".dat"
)

// OpenOffload opens a folder written by Accelerate's disk offload: index.json and one NAME.dat
// per tensor, or entries that refer to safetensors files.
//
// It rejects a name that is not a plain file name, and a .dat file whose length differs from its
// entry. A tensor in a safetensors file keeps its stored dtype; as in Accelerate, the path is
// relative to the working directory.
func OpenOffload(dir string) (*Checkpoint, error) {
	path := filepath.Join(dir, offloadIndex)
	text, err := readSmall(path, maxHeader)
	if err != nil {
		return nil, err
	}
	entries, err := parseOffload(text)
	if err != nil {
		e := err.(*Error)
		e.File = path
		return nil, e
	}
	c := &Checkpoint{name: dir, dir: dir, index: make(map[string]int32, len(entries))}
	pointed := map[string]*Checkpoint{}
	for _, e := range entries {
		t, err := c.openEntry(e, pointed)
		if err != nil {
			c.Close()
			return nil, err
		}
		c.index[e.name] = int32(len(c.tensors))
		c.tensors = append(c.tensors, t)
	}
	return c, nil
}

// openEntry locates the bytes of one entry. pointed holds the safetensors files opened so far.
func (c *Checkpoint) openEntry(e offloadEntry, pointed map[string]*Checkpoint) (Tensor, error) {
	if e.file != "" {
		return c.pointedTensor(e, pointed)
	}
	name := e.name + datSuffix
	f, err := openFile(filepath.Join(c.dir, name), name)
	if err != nil {
		return Tensor{}, named(err, e.name)
	}
	t := Tensor{Name: e.name, DType: e.dtype, Shape: e.shape, File: f, Size: e.size}
	if f.Size != t.Size && (t.Size != 0 || f.Size > 1) { // Accelerate writes an empty tensor as one byte
		return Tensor{}, failf(f.Path, e.name, "%v of shape %v takes %d bytes, the file has %d", e.dtype, short(e.shape), e.size, f.Size)
	}
	c.files = append(c.files, f)
	return t, nil
}

func (c *Checkpoint) pointedTensor(e offloadEntry, pointed map[string]*Checkpoint) (Tensor, error) {
	ck := pointed[e.file]
	if ck == nil {
		if !strings.HasSuffix(e.file, safetensorsSuffix) {
			return Tensor{}, failf(e.file, e.name, "is not a .safetensors file")
		}
		var err error
		if ck, err = Open(e.file); err != nil {
			return Tensor{}, named(err, e.name)
		}
		pointed[e.file] = ck
		c.files = append(c.files, ck.files...)
	}
	t, ok := ck.Lookup(e.weight)
	if !ok {
		return Tensor{}, failf(e.file, e.name, "want tensor %s, which the file does not have", quoted(e.weight))
	}
	own := *t
	own.Name = e.name
	return own, nil
}

// named adds the tensor's name to err.
func named(err error, tensor string) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	own := *e
	own.Tensor = tensor
	return &own
}

// An offloadEntry is one entry of an offload index: the shape and dtype of NAME.dat, or a file
// and the tensor's name in it.
type offloadEntry struct {
	name  string
	dtype meta.DType
	shape []int
	size  int64

	file, weight string
}

// parseOffload parses an offload index. If a name occurs twice, its last entry counts, as in
// Python. Errors are *Error without File.
func parseOffload(text []byte) ([]offloadEntry, error) {
	p := offloadParser{scanner: newScanner(text, true), at: map[string]int{}}
	err := error(nil)
	if !utf8.Valid(text) {
		err = errors.New("not UTF-8")
	}
	if err == nil {
		err = p.Object("an object", p.entry)
	}
	if err == nil {
		err = p.end()
	}
	if err != nil {
		return nil, &Error{Tensor: p.tensor, Reason: "offload index: " + err.Error()}
	}
	return p.entries, nil
}

type offloadParser struct {
	scanner
	entries []offloadEntry
	at      map[string]int
	tensor  string // at which an error occurred
}

func (p *offloadParser) entry(key []byte) error {
	e := offloadEntry{name: string(key), weight: string(key)}
	p.tensor = e.name
	var shape []uint64
	hasShape := false
	err := p.Object("an entry to be an object", func(key []byte) error {
		switch string(key) {
		case "dtype":
			return p.text("dtype", func(v string) (err error) {
				e.dtype, err = meta.ParseDType(v)
				return err
			})
		case "shape":
			hasShape, shape = true, nil
			return p.Array("shape to be an array", func(int) error {
				d, err := p.natural()
				shape = append(shape, d)
				return err
			})
		case "safetensors_file":
			if null, err := p.Null(); null || err != nil {
				return err
			}
			return p.text("safetensors_file", func(v string) error { e.file = v; return nil })
		case "weight_name":
			return p.text("weight_name", func(v string) error { e.weight = v; return nil })
		}
		return p.Skip()
	})
	if err == nil && e.file == "" {
		err = e.complete(shape, hasShape)
	}
	if err != nil {
		return err
	}
	p.tensor = ""
	if at, twice := p.at[e.name]; twice {
		p.entries[at] = e
		return nil
	}
	p.at[e.name] = len(p.entries)
	p.entries = append(p.entries, e)
	return nil
}

func (p *offloadParser) text(what string, set func(string) error) error {
	if p.Peek() != '"' {
		return p.fail("expected " + what + " to be a string")
	}
	v, err := p.String()
	if err != nil {
		return err
	}
	return set(string(v))
}

// complete checks an entry that refers to NAME.dat.
func (e *offloadEntry) complete(shape []uint64, hasShape bool) error {
	if reason := plainName(e.name + datSuffix); reason != "" {
		return errors.New("the name " + reason)
	}
	if e.dtype == meta.NoDType || !hasShape {
		return errors.New("no dtype or no shape")
	}
	size, err := byteSize(shape, e.dtype)
	if err != nil {
		return err
	}
	e.size, e.shape = size, make([]int, len(shape))
	for i, d := range shape {
		if e.shape[i] = int(d); e.shape[i] < 0 {
			return errOverflow
		}
	}
	return nil
}

// WriteOffload writes tensors into dir as Accelerate's disk offload does, and adds them to an
// existing index.json. Files are written atomically, the index last. It returns an error for a
// name that is not a plain file name.
func WriteOffload(dir string, tensors iter.Seq[NamedTensor]) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return &Error{File: dir, Reason: "cannot be created", Err: unpath(err)}
	}
	index, err := readOffloadIndex(dir)
	if err != nil {
		return err
	}
	staged, err := newStaging(dir)
	if err != nil {
		return err
	}
	defer staged.discard()
	for t := range tensors {
		if reason := unoffloadable(t); reason != "" {
			return failf(dir, t.Name, "cannot be offloaded: %s", reason)
		}
		if _, err := staged.write(t.Name+datSuffix, t.writeDat); err != nil {
			return err
		}
		index.set(t)
	}
	if len(index.names) == 0 {
		return nil
	}
	if _, err := staged.write(offloadIndex, index.write); err != nil {
		return err
	}
	return staged.commit()
}

// unoffloadable returns the reason why Accelerate could not read t back, or "".
func unoffloadable(t NamedTensor) string {
	if reason := plainName(t.Name + datSuffix); reason != "" {
		return "the name " + reason
	}
	if !utf8.ValidString(t.Name) {
		return "the name is not UTF-8"
	}
	if t.DType.Bits() == 0 || t.DType.Bits()%8 != 0 {
		return fmt.Sprintf("the format has no %v", t.DType)
	}
	return ""
}

func (t NamedTensor) writeDat(w io.Writer) error {
	b, err := t.elements()
	if err != nil {
		return err
	}
	if len(b) == 0 {
		b = []byte{0} // the reference maps the file, and an empty one cannot be
	}
	_, err = w.Write(b)
	return err
}

// An offloadFile is the index of an offload folder that is being written. Entries of an existing
// index stay unchanged, in their order.
type offloadFile struct {
	names   []string
	entries map[string]json.RawMessage
}

func readOffloadIndex(dir string) (*offloadFile, error) {
	f := &offloadFile{entries: map[string]json.RawMessage{}}
	path := filepath.Join(dir, offloadIndex)
	text, err := readSmall(path, maxHeader)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	old, err := parseOffload(text)
	if err == nil {
		err = json.Unmarshal(text, &f.entries)
	}
	if err != nil {
		return nil, &Error{File: path, Reason: "cannot be added to", Err: err}
	}
	for _, e := range old {
		f.names = append(f.names, e.name)
	}
	return f, nil
}

func (f *offloadFile) set(t NamedTensor) {
	if _, has := f.entries[t.Name]; !has {
		f.names = append(f.names, t.Name)
	}
	entry := struct {
		DType string `json:"dtype"`
		Shape []int  `json:"shape"`
	}{t.DType.String(), append([]int{}, t.Shape...)}
	f.entries[t.Name], _ = json.Marshal(entry) // text and integers always marshal
}

func (f *offloadFile) write(w io.Writer) error {
	var text, pretty bytes.Buffer
	text.WriteByte('{')
	for i, name := range f.names {
		key, err := json.Marshal(name)
		if err != nil {
			return err
		}
		if i > 0 {
			text.WriteByte(',')
		}
		text.Write(key)
		text.WriteByte(':')
		text.Write(f.entries[name])
	}
	text.WriteByte('}')
	if err := json.Indent(&pretty, text.Bytes(), "", "  "); err != nil {
		return err
	}
	_, err := w.Write(pretty.Bytes())
	return err
}
