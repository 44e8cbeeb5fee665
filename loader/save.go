package loader

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/heftai/heft/meta"
)

// A NamedTensor is a tensor to write.
type NamedTensor struct {
	Name  string
	DType meta.DType
	Shape []int
	// Bytes returns the elements, little-endian and dense. It is called once, when the tensor is
	// written. The result is not used after the call for the next tensor.
	Bytes func() ([]byte, error)
	// Write, if not nil, writes the elements and is used instead of Bytes, so that they need not
	// be in memory at once. Functions that need them in memory call Bytes.
	Write func(w io.Writer) error
	// Exact forbids rounding the elements to another dtype. It is set for buffers whose values
	// must not change.
	Exact bool
}

// Named returns t as a tensor to write.
func (t *Tensor) Named() NamedTensor {
	return NamedTensor{Name: t.Name, DType: t.DType, Shape: t.Shape, Bytes: t.Bytes}
}

// Size returns the size of the tensor in a file, in bytes.
func (t NamedTensor) Size() int64 { return t.DType.Bytes(meta.Elements(t.Shape)) }

// SaveOptions configure [Save]. The zero value writes one file that transformers can open.
type SaveOptions struct {
	// MaxShardSize is the maximum size of the tensors in one file in bytes; 0 means no limit. A
	// larger tensor gets a file of its own.
	MaxShardSize int64
	// Metadata is written to every file; nil means {"format": "pt"}, which transformers requires.
	Metadata map[string]string
	// Stem is the file name without suffix; "" means "model".
	Stem string
	// Copy, if not nil, is called with the name of each file of tensors. The writer that it returns
	// also receives the bytes of the file, such as a hash.
	Copy func(name string) io.Writer
}

// Save writes tensors into dir, which it creates if needed: as STEM.safetensors, or as shards
// STEM-00001-of-0000N.safetensors with STEM.safetensors.index.json if they exceed MaxShardSize.
// All files are written and synced under temporary names before the first is renamed. A failed
// write, for example on a full disk, leaves dir unchanged. Finally Save removes files of an
// earlier save with the same stem that it did not replace. If the process dies during the
// renames, [Open] rejects the folder.
//
// The tensors may be those of a checkpoint in dir itself. Names must be distinct and valid UTF-8.
// Errors are *Error.
func Save(dir string, tensors iter.Seq[NamedTensor], opts SaveOptions) error {
	s := saver{dir: dir, stem: opts.Stem, metadata: opts.Metadata, copy: opts.Copy}
	if s.stem == "" {
		s.stem = "model"
	}
	if s.metadata == nil {
		s.metadata = map[string]string{"format": "pt"}
	}
	if reason := plainName(s.stem); reason != "" {
		return failf(dir, "", "stem %s %s", quoted(s.stem), reason)
	}
	if tensors == nil {
		return failf(dir, "", "cannot be saved: got a nil sequence of tensors")
	}
	shards, err := s.split(tensors, opts.MaxShardSize)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return &Error{File: dir, Reason: "cannot be created", Err: unpath(err)}
	}
	staged, err := newStaging(dir)
	if err != nil {
		return err
	}
	defer staged.discard()
	if err := s.write(staged, shards); err != nil {
		return err
	}
	if len(shards) > 1 {
		// A process that dies between two renames must not leave a mix of files that looks
		// complete.
		index := filepath.Join(dir, s.stem+indexSuffix)
		if err := os.Remove(index); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return &Error{File: index, Reason: "cannot be replaced", Err: unpath(err)}
		}
	}
	keep := staged.batch.Names()
	if err := staged.commit(); err != nil {
		return err
	}
	return s.removeStale(keep)
}

type saver struct {
	dir, stem string
	metadata  map[string]string
	copy      func(name string) io.Writer // nil for none
}

// split validates the tensors and distributes them over shards in order.
func (s *saver) split(tensors iter.Seq[NamedTensor], limit int64) ([][]NamedTensor, error) {
	seen := map[string]bool{}
	shards := [][]NamedTensor{nil}
	var size int64
	for t := range tensors {
		if reason := unsavable(t); reason != "" {
			return nil, failf(s.dir, t.Name, "cannot be saved: %s", reason)
		}
		if seen[t.Name] {
			return nil, failf(s.dir, t.Name, "cannot be saved: two tensors have this name")
		}
		seen[t.Name] = true
		last := len(shards) - 1
		if limit > 0 && size+t.Size() > limit && len(shards[last]) > 0 {
			shards, size = append(shards, nil), 0
			last++
		}
		shards[last] = append(shards[last], t)
		size += t.Size()
	}
	return shards, nil
}

func unsavable(t NamedTensor) string {
	switch {
	case !utf8.ValidString(t.Name):
		return "the name is not UTF-8"
	case t.Bytes == nil && t.Write == nil:
		return "it has neither Bytes nor Write"
	case t.Name == "__metadata__":
		return "the name is reserved"
	case t.DType.Safetensors() == "":
		return fmt.Sprintf("safetensors has no %v", t.DType)
	case slices.ContainsFunc(t.Shape, func(d int) bool { return d < 0 }):
		return fmt.Sprintf("shape %v", t.Shape)
	case meta.Elements(t.Shape)*int64(t.DType.Bits())%8 != 0:
		return errSubByte.Error()
	}
	return ""
}

// write stages the shards and, if there are several, their index.
func (s *saver) write(staged *staging, shards [][]NamedTensor) error {
	if len(shards) == 1 {
		return s.writeShard(staged, s.stem+safetensorsSuffix, shards[0])
	}
	index := shardIndex{WeightMap: map[string]string{}}
	for i, tensors := range shards {
		name := shardName(s.stem, i+1, len(shards))
		if err := s.writeShard(staged, name, tensors); err != nil {
			return err
		}
		for _, t := range tensors {
			index.WeightMap[t.Name] = name
			index.Metadata.TotalSize += t.Size()
		}
	}
	_, err := staged.write(s.stem+indexSuffix, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(index)
	})
	return err
}

type shardIndex struct {
	Metadata struct {
		TotalSize int64 `json:"total_size"`
	} `json:"metadata"`
	WeightMap map[string]string `json:"weight_map"`
}

// writeShard stages one safetensors file and reads its header back.
func (s *saver) writeShard(staged *staging, name string, tensors []NamedTensor) error {
	temp, err := staged.write(name, func(w io.Writer) error {
		if s.copy != nil {
			w = io.MultiWriter(w, s.copy(name))
		}
		if views, ok := libraryViews(tensors); ok {
			return writeViews(w, views, s.metadata)
		}
		return writeTensors(w, tensors, s.metadata)
	})
	if err != nil {
		return err
	}
	f, h, err := openHeader(diskFolder(s.dir), temp)
	if f != nil {
		f.close()
	}
	if err == nil && len(h.tensors) != len(tensors) {
		err = failf(filepath.Join(s.dir, name), "", "got %d tensors in the written file, want %d", len(h.tensors), len(tensors))
	}
	return err
}

// removeStale removes files of the same stem that an earlier save left.
func (s *saver) removeStale(keep []string) error {
	names, err := diskFolder(s.dir).names()
	if err != nil {
		return err
	}
	for _, name := range names {
		if slices.Contains(keep, name) || !s.owns(name) {
			continue
		}
		if err := os.Remove(filepath.Join(s.dir, name)); err != nil {
			return &Error{File: filepath.Join(s.dir, name), Reason: "a stale file cannot be removed", Err: unpath(err)}
		}
	}
	return nil
}

// owns reports whether a save of the stem may write a file called name.
func (s *saver) owns(name string) bool {
	if name == s.stem+safetensorsSuffix || name == s.stem+indexSuffix {
		return true
	}
	rest, ok := strings.CutPrefix(name, s.stem+"-")
	if ok {
		rest, ok = strings.CutSuffix(rest, safetensorsSuffix)
	}
	i, n, of := strings.Cut(rest, "-of-")
	return ok && of && digitsOnly(i) && digitsOnly(n)
}

func digitsOnly(s string) bool {
	return len(s) >= 5 && strings.Trim(s, "0123456789") == ""
}

// writeTensors writes a safetensors file with tensors of any dtypes, sorted by decreasing element
// size, so that all are aligned, then by name. This is the order of the reference's writer.
func writeTensors(w io.Writer, tensors []NamedTensor, metadata map[string]string) error {
	tensors = slices.Clone(tensors)
	slices.SortFunc(tensors, func(a, b NamedTensor) int {
		if d := b.DType.Bits() - a.DType.Bits(); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	entries := map[string]any{}
	if len(metadata) > 0 {
		entries["__metadata__"] = metadata
	}
	var offset int64
	for _, t := range tensors {
		entries[t.Name] = headerEntry{t.DType.Safetensors(), append([]int{}, t.Shape...), [2]int64{offset, offset + t.Size()}}
		offset += t.Size()
	}
	text, err := json.Marshal(entries)
	if err != nil {
		return err
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	if _, err := w.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)); err != nil {
		return err
	}
	for _, t := range tensors {
		if err := t.writeTo(w); err != nil {
			return err
		}
	}
	return nil
}

// writeTo writes the elements of t.
func (t NamedTensor) writeTo(w io.Writer) error {
	if t.Write == nil {
		b, err := t.elements()
		if err == nil {
			_, err = w.Write(b)
		}
		return err
	}
	c := counting{w: w}
	if err := t.Write(&c); err != nil {
		return err
	}
	if c.n != t.Size() {
		return failf("", t.Name, "%d bytes were written for %v of shape %v, which take %d", c.n, t.DType, t.Shape, t.Size())
	}
	return nil
}

// counting is a writer that counts the bytes written.
type counting struct {
	w io.Writer
	n int64
}

func (c *counting) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

type headerEntry struct {
	DType   string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// elements returns the bytes of t and checks that their size matches its shape.
func (t NamedTensor) elements() ([]byte, error) {
	b, err := t.Bytes()
	if err != nil {
		return nil, err
	}
	if int64(len(b)) != t.Size() {
		return nil, failf("", t.Name, "%d bytes were given for %v of shape %v, which take %d", len(b), t.DType, t.Shape, t.Size())
	}
	return b, nil
}
