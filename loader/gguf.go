package loader

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/heftai/heft/internal/gguf"
	"github.com/heftai/heft/internal/gguf/folder"
	"github.com/heftai/heft/internal/hubcache"
	"github.com/heftai/heft/meta"
)

// ggufDTypes maps the types whose elements are values.
var ggufDTypes = map[gguf.Type]meta.DType{
	gguf.F32: meta.Float32, gguf.F16: meta.Float16, gguf.BF16: meta.BFloat16, gguf.F64: meta.Float64,
	gguf.I8: meta.Int8, gguf.I16: meta.Int16, gguf.I32: meta.Int32, gguf.I64: meta.Int64,
}

// ggufFormats maps the types whose elements are codes in blocks.
var ggufFormats = map[gguf.Type]meta.QuantFormat{
	gguf.Q8_0: meta.QuantQ8, gguf.Q4_0: meta.QuantQ4, gguf.Q4_1: meta.QuantQ41, gguf.Q5_0: meta.QuantQ50, gguf.Q5_1: meta.QuantQ51,
	gguf.Q2_K: meta.QuantQ2K, gguf.Q3_K: meta.QuantQ3K, gguf.Q4_K: meta.QuantQ4K, gguf.Q5_K: meta.QuantQ5K, gguf.Q6_K: meta.QuantQ6K,
	gguf.IQ4_NL: meta.QuantIQ4NL, gguf.IQ4_XS: meta.QuantIQ4XS, gguf.MXFP4: meta.QuantMXFP4Block,
	gguf.IQ2_XXS: meta.QuantIQ2XXS, gguf.IQ2_XS: meta.QuantIQ2XS, gguf.IQ2_S: meta.QuantIQ2S, gguf.IQ3_XXS: meta.QuantIQ3XXS, gguf.IQ3_S: meta.QuantIQ3S,
	gguf.IQ1_S: meta.QuantIQ1S, gguf.IQ1_M: meta.QuantIQ1M, gguf.TQ1_0: meta.QuantTQ10, gguf.TQ2_0: meta.QuantTQ20,
	gguf.NVFP4: meta.QuantNVFP4Block, gguf.Q1_0: meta.QuantQ10, gguf.Q2_0: meta.QuantQ20,
}

// openGGUF opens a GGUF file, with all parts of a split one.
func openGGUF(from fileFolder, name string) (*Checkpoint, error) {
	names, err := ggufParts(name)
	if err != nil {
		return nil, failf(filepath.Join(from.label(), name), "", "%s", err)
	}
	stem, _, _ := strings.Cut(names[0][:len(name)-len(gguf.Suffix)], "-00001-of-")
	c := &Checkpoint{name: from.label(), dir: from.dir(), model: stem}
	heads := make([]*gguf.File, len(names))
	for i, part := range names {
		f, err := from.open(part)
		if err == nil {
			c.files = append(c.files, f)
			if heads[i], err = gguf.Read(fileReader{f}, f.Size); err != nil {
				err = ggufError(f, err)
			}
		}
		if err == nil {
			err = ggufPart(f, heads[i].Meta, i, len(names))
		}
		if err != nil {
			c.Close()
			return nil, err
		}
	}
	if err := c.joinGGUF(heads); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// ggufError adds the file to an error of package gguf.
func ggufError(f *File, err error) error {
	var own *gguf.Error
	if errors.As(err, &own) {
		reason := own.Reason
		if own.Key != "" {
			reason = printable(own.Key) + ": " + reason
		}
		return &Error{File: f.label(), Tensor: own.Tensor, Reason: reason}
	}
	return unread("reading the header", err)
}

// ggufParts returns the names of all parts of a split file, NAME-00001-of-0000N.gguf, from the
// name of one of them. For other files it returns the name itself.
func ggufParts(name string) ([]string, error) {
	stem := name[:len(name)-len(gguf.Suffix)]
	before, count, ok := cutLast(stem, "-of-")
	base, number, ok2 := cutLast(before, "-")
	if !ok || !ok2 || len(count) != 5 || len(number) != 5 {
		return []string{name}, nil
	}
	n, err := strconv.Atoi(count)
	i, err2 := strconv.Atoi(number)
	if err != nil || err2 != nil {
		return []string{name}, nil
	}
	if i < 1 || i > n || n > 4096 {
		return nil, fmt.Errorf("the name says that it is part %d of %d", i, n)
	}
	names := make([]string, n)
	for k := range names {
		names[k] = base + "-" + five(k+1) + "-of-" + count + name[len(stem):]
	}
	return names, nil
}

func cutLast(s, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// ggufPart checks the split metadata of part i of n.
func ggufPart(f *File, m gguf.Metadata, i, n int) error {
	for key, want := range map[string]int{"split.no": i, "split.count": n} {
		got, ok, err := m.Int(key)
		if err != nil {
			return ggufError(f, err)
		}
		if !ok {
			if n > 1 {
				return failf(f.label(), key, "the key is missing in a part of a split file")
			}
			continue
		}
		if got == 0 && n == 1 {
			continue
		}
		if got != int64(want) {
			return failf(f.label(), key, "got %d, want %d: keep the published names of a split file's parts, NAME-00001-of-0000N.gguf", got, want)
		}
	}
	return nil
}

// joinGGUF adds the tensors of all parts, under the names of a model folder.
func (c *Checkpoint) joinGGUF(heads []*gguf.File) error {
	infos := map[string]*gguf.Tensor{}
	files := map[string]*File{}
	count := 0
	for i, head := range heads {
		for k := range head.Tensors {
			t := &head.Tensors[k]
			if infos[t.Name] != nil {
				return failf(c.files[i].label(), t.Name, "is in %s too", printable(files[t.Name].Name))
			}
			infos[t.Name], files[t.Name] = t, c.files[i]
			count++
		}
	}
	if want, ok, _ := heads[0].Meta.Int("split.tensors.count"); ok && want != int64(count) {
		return failf(c.files[0].label(), "split.tensors.count", "got %d, but the parts have %d tensors", want, count)
	}
	model, err := folder.Open(heads[0].Meta, folder.Source{
		Tensor: func(name string) (*gguf.Tensor, bool) { t, ok := infos[name]; return t, ok },
		Floats: func(t *gguf.Tensor) ([]float64, error) { return ggufFloats(files[t.Name], t) },
	})
	if err != nil {
		return ggufError(c.files[0], err)
	}
	c.conventions = model.Conventions
	c.index = make(map[string]int32, count)
	for i, head := range heads {
		for k := range head.Tensors {
			if err := c.addGGUF(c.files[i], &head.Tensors[k], model); err != nil {
				return err
			}
		}
	}
	if err := c.addExtras(model.Extras); err != nil {
		return err
	}
	var modified time.Time
	if info := c.files[0].identity().info; info != nil {
		modified = info.ModTime()
	}
	c.fsys = model.FS(modified)
	return nil
}

// ggufFloats reads a small tensor of float32.
func ggufFloats(f *File, t *gguf.Tensor) ([]float64, error) {
	b := make([]byte, t.Size)
	if _, err := f.readAt(b, t.Offset); err != nil {
		return nil, unread("reading "+printable(t.Name), err)
	}
	list := make([]float64, len(b)/4)
	for i := range list {
		list[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
	}
	return list, nil
}

// addGGUF adds a tensor of f, or each of its slices.
func (c *Checkpoint) addGGUF(f *File, info *gguf.Tensor, model *folder.Folder) error {
	name, ok := model.Tensor(info.Name)
	if !ok {
		return nil
	}
	if name.Scales != nil {
		return c.addScale(f, info, name)
	}
	shape := name.Layout.Shape(info.Shape)
	if !name.Stack && name.Layout == folder.Same && len(shape) == 3 { // matrices of heads, one after another
		shape = []int{shape[0] * shape[1], shape[2]}
	}
	t := Tensor{Name: name.Name, Shape: shape, File: f, Offset: info.Offset, Size: info.Size}
	if d, ok := ggufDTypes[info.Type]; ok {
		t.DType = d
	} else if format, ok := ggufFormats[info.Type]; ok {
		columns, bytes := info.Type.Block()
		if name.Layout != folder.Same {
			return failf(f.label(), info.Name, "%v is not supported in this tensor, want values", info.Type)
		}
		t.DType, t.Format = meta.Uint8, format
		t.Shape[len(t.Shape)-1] /= columns
		t.Shape = append(t.Shape, bytes)
	} else {
		return failf(f.label(), info.Name, "%v has no kernels: take a file of another type, such as Q4_K_M", info.Type)
	}
	if name.Parts != nil {
		return c.addParts(t, name.Parts)
	}
	if !name.Stack {
		return c.addTensor(t)
	}
	n := info.Shape[0]
	if len(info.Shape) < 2 || n > maxSlices {
		return failf(f.label(), info.Name, "shape %v is no stack of matrices", info.Shape)
	}
	t.Shape, t.Size = t.Shape[1:], t.Size/int64(n)
	before, after, _ := strings.Cut(name.Name, "{}")
	for i := range n {
		slice := t
		slice.Name, slice.Offset = before+strconv.Itoa(i)+after, t.Offset+int64(i)*t.Size
		if err := c.addTensor(slice); err != nil {
			return err
		}
	}
	return nil
}

// addScale adds a tensor that multiplies the values of another: a number, or one for each slice of a stack.
func (c *Checkpoint) addScale(f *File, info *gguf.Tensor, name folder.Name) error {
	if info.Type != gguf.F32 || len(info.Shape) != 1 || !name.Stack && info.Shape[0] != 1 || info.Shape[0] > maxSlices {
		return failf(f.label(), info.Name, "got %v of shape %v, want scales of F32", info.Type, info.Shape)
	}
	if name.Scales.Type != gguf.NVFP4 {
		scales, err := ggufFloats(f, info)
		if i := slices.IndexFunc(scales, func(x float64) bool { return x != 1 }); err == nil && i >= 0 {
			return failf(f.label(), info.Name, "a scale of %v for weights of %v is not supported, want NVFP4: take a file of another type", scales[i], name.Scales.Type)
		}
		return err
	}
	names := []string{name.Name}
	switch before, after, _ := strings.Cut(name.Name, "{}"); {
	case name.Parts != nil:
		names = nil
		for _, p := range name.Parts {
			names = append(names, p.Name)
		}
	case name.Stack:
		names = names[:0]
		for i := range info.Shape[0] {
			names = append(names, before+strconv.Itoa(i)+after)
		}
	}
	for i, name := range names {
		at := info.Offset
		if info.Shape[0] > 1 {
			at += 4 * int64(i)
		}
		if err := c.addTensor(Tensor{Name: name, Shape: []int{1}, DType: meta.Float32, File: f, Offset: at, Size: 4}); err != nil {
			return err
		}
	}
	return nil
}

// addExtras adds weights that are stored as metadata, in memory.
func (c *Checkpoint) addExtras(extras []folder.Extra) error {
	if len(extras) == 0 {
		return nil
	}
	var data []byte
	for _, e := range extras {
		for _, x := range e.Values {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
		}
		for _, n := range e.Integers {
			data = binary.LittleEndian.AppendUint64(data, uint64(n))
		}
	}
	f, at := memoryFile("", c.files[0].label(), data), int64(0)
	for _, e := range extras {
		t := Tensor{Name: e.Name, Shape: e.Shape, DType: meta.Float32, File: f, Offset: at, Size: 4 * int64(len(e.Values))}
		if e.Integers != nil {
			t.DType, t.Size = meta.Int64, 8*int64(len(e.Integers))
		}
		if err := c.addTensor(t); err != nil {
			return err
		}
		at += t.Size
	}
	return nil
}

// addParts adds parts of t, which are ranges of its rows.
func (c *Checkpoint) addParts(t Tensor, parts []folder.Part) error {
	rows := 0
	for _, p := range parts {
		rows += p.Rows
	}
	if rows != t.Shape[0] || rows < 1 {
		return failf(t.File.label(), parts[0].Name, "got %d rows for the parts of a tensor of shape %v", rows, t.Shape)
	}
	row, at := t.Size/int64(t.Shape[0]), t.Offset
	for _, p := range parts {
		part := t
		part.Name, part.Offset, part.Size = p.Name, at, row*int64(p.Rows)
		part.Shape = append([]int{p.Rows}, t.Shape[1:]...)
		if err := c.addTensor(part); err != nil {
			return err
		}
		at += part.Size
	}
	return nil
}

// maxSlices is the maximum number of experts in a stack.
const maxSlices = 1 << 14

func (c *Checkpoint) addTensor(t Tensor) error {
	if _, twice := c.index[t.Name]; twice {
		return failf(t.File.label(), t.Name, "two tensors of the file are this one")
	}
	c.index[t.Name] = int32(len(c.tensors))
	c.tensors = append(c.tensors, t)
	return nil
}

// openOneGGUF opens the only model among a folder's GGUF files.
func openOneGGUF(from fileFolder, names []string) (*Checkpoint, error) {
	models := ggufModels(names)
	if len(models) > 1 { // importance matrices, drafts and adapters may be beside the model
		if own := slices.DeleteFunc(slices.Clone(models), func(name string) bool { return !ggufServes(from, name) }); len(own) > 0 {
			models = own
		}
	}
	switch len(models) {
	case 0:
		return nil, failf(from.label(), "", "no model among its GGUF files (%s)", list(names))
	case 1:
		return openGGUF(from, models[0])
	}
	return nil, failf(from.label(), "", "several GGUF files: name the one to open: %s", printable(strings.Join(models, ", ")))
}

// ggufModels returns the models among GGUF files: the first part of each split one. Files
// that are no models by their names are left out.
func ggufModels(names []string) []string {
	var models []string
	for _, name := range names {
		if !gguf.MayBeModel(name) {
			continue
		}
		if parts, err := ggufParts(name); err == nil && parts[0] != name {
			continue
		}
		models = append(models, name)
	}
	return models
}

// ggufServes reports whether a file has a model of an architecture that is supported, or cannot be read.
func ggufServes(from fileFolder, name string) bool {
	f, err := from.open(name)
	if err != nil {
		return true
	}
	defer f.close()
	head, err := gguf.Read(fileReader{f}, f.Size)
	return err != nil || folder.Serves(head.Meta)
}

// Files returns the files of the model at path other than its weights, such as config.json and
// the tokenizer's, as [Checkpoint.FS] does. path is anything that [Open] accepts. For a GGUF file
// they are derived from its metadata, and name is the model's name. Otherwise name is "" and no
// file is opened.
func Files(path string) (files fs.FS, name string, err error) {
	if path, err = hubcache.Find(path); err != nil {
		return nil, "", fromCache(err)
	}
	if !gguf.IsFile(path) {
		dir, err := Folder(path)
		if err != nil {
			return nil, "", err
		}
		names, err := diskFolder(dir).names()
		if err != nil {
			return nil, "", err
		}
		other := func(name string) bool { return !gguf.IsFile(name) && strings.Contains(name, safetensorsSuffix) }
		if len(ggufModels(names)) == 0 || slices.ContainsFunc(names, other) {
			return os.DirFS(dir), "", nil
		}
	}
	c, err := Open(path)
	if err != nil {
		return nil, "", err
	}
	return c.FS(), c.Name(), c.Close()
}
