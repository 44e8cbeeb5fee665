// Package folder presents a GGUF file as the folder of the Hub that it was made from: config.json, the
// tokenizer's files, and tensors with the names that transformers gives them.
//
// [Open] derives everything from metadata and tensor infos. Where a GGUF's weights differ from those that
// transformers saves (rows in another order, norms that include an offset), [Folder.Conventions] says so;
// nothing is converted. An architecture or a tokenizer that is not in the tables is an error with its name.
package folder

import (
	"bytes"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/heftai/heft/internal/gguf"
	"github.com/heftai/heft/meta"
)

// A Folder is what a GGUF file says of its model.
type Folder struct {
	// Conventions say how the file's tensors differ from those that transformers saves.
	Conventions meta.Conventions
	// Extras are weights that are not among the file's tensors.
	Extras []Extra

	arch   *architecture
	layers int64
	own    map[string]string // whole names that the metadata decides
	stack  int64             // number of layers of each stack, if the names have several
	config []byte
	from   Source

	vocabulary func() (*vocabulary, error) // reads it once
	tokenizer  func() ([]byte, error)      // makes it once
}

// An Extra is a small weight that the metadata has.
type Extra struct {
	Name   string // in the folder
	Shape  []int
	Values []float32
	// Integers, if not nil, are the values instead.
	Integers []int64
}

// A Source gives what [Open] needs of the tensors.
type Source struct {
	// Tensor returns a tensor by its name in the file.
	Tensor func(name string) (*gguf.Tensor, bool)
	// Floats reads a small tensor of float32, such as the factors of rope.
	Floats func(t *gguf.Tensor) ([]float64, error)
}

// has reports whether the file has a tensor.
func (s Source) has(tensor string) bool {
	_, ok := s.Tensor(tensor)
	return ok
}

// Open derives the folder from the metadata of a file, the first of a split one. Errors name the key.
func Open(m gguf.Metadata, from Source) (*Folder, error) {
	if kind, _, err := m.Text(typeKey); err != nil {
		return nil, err
	} else if slices.Contains(partTypes, kind) {
		return nil, &gguf.Error{Key: typeKey, Reason: fmt.Sprintf("got %q, want \"model\": the file belongs to a model and is not one itself", kind)}
	}
	name, ok, err := m.Text("general.architecture")
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, &gguf.Error{Key: "general.architecture", Reason: "the key is missing"}
	}
	k := &keys{meta: m, from: from, arch: name}
	arch := k.lookup()
	if arch == nil {
		return nil, &gguf.Error{Key: "general.architecture", Reason: fmt.Sprintf("got %.60q, which is not supported; docs/models.md lists the %d architectures of GGUF files", name, len(Architectures()))}
	}
	config, err := k.config(arch)
	if err != nil {
		return nil, err
	}
	f := &Folder{arch: arch, layers: k.layers(), config: config, from: from, Conventions: arch.conventions}
	f.vocabulary = sync.OnceValues(func() (*vocabulary, error) { return readVocabulary(m) })
	f.tokenizer = sync.OnceValues(func() ([]byte, error) { return f.fromVocabulary(tokenizerFile) })
	f.Conventions.OutputsFirst = true
	if len(arch.names.stacks) > 0 {
		f.stack = k.size(stackKey)
	}
	if arch.own != nil {
		f.own = arch.own(k)
	}
	if arch.extras != nil {
		f.Extras = arch.extras(k)
	}
	if k.err != nil {
		return nil, k.err
	}
	return f, nil
}

// typeKey says what a file contains. Files without it, and with any value that is not one of partTypes, are models.
const typeKey = "general.type"

// partTypes are the types of files that belong to a model: LoRA adapters, importance matrices, and projectors of images and
// sound.
var partTypes = []string{"adapter", "imatrix", "mmproj"}

// Serves reports whether metadata is that of a model of an architecture that [Open] knows.
func Serves(m gguf.Metadata) bool {
	kind, _, err := m.Text(typeKey)
	name, _, _ := m.Text("general.architecture")
	return err == nil && !slices.Contains(partTypes, kind) && slices.ContainsFunc(architectures, func(a architecture) bool { return a.name == name })
}

// FS returns the files. tokenizer.json is made when it is first opened.
func (f *Folder) FS(modified time.Time) fs.FS { return files{f, modified} }

// files is a Folder as a file system without folders.
type files struct {
	*Folder
	modified time.Time
}

// Open implements fs.FS.
func (f files) Open(name string) (fs.File, error) {
	data, err := f.read(name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &file{Reader: bytes.NewReader(data), name: name, modified: f.modified}, nil
}

// A file is one of the files, opened.
type file struct {
	*bytes.Reader
	name     string
	modified time.Time
}

func (f *file) Close() error               { return nil }
func (f *file) Stat() (fs.FileInfo, error) { return info{f}, nil }

// info implements fs.FileInfo.
type info struct{ *file }

func (i info) Name() string       { return i.name }
func (i info) Mode() fs.FileMode  { return 0o444 }
func (i info) ModTime() time.Time { return i.modified }
func (i info) IsDir() bool        { return false }
func (i info) Sys() any           { return nil }

func (f files) read(name string) ([]byte, error) {
	switch name {
	case "config.json":
		return f.config, nil
	case "generation_config.json":
		return f.fromVocabulary(generationConfig)
	case "tokenizer_config.json":
		return f.fromVocabulary(tokenizerConfig)
	case "tokenizer.json":
		return f.tokenizer()
	}
	return nil, fs.ErrNotExist
}

// fromVocabulary returns a file that is made from the vocabulary.
func (f *Folder) fromVocabulary(file func(*vocabulary) ([]byte, error)) ([]byte, error) {
	v, err := f.vocabulary()
	if err != nil {
		return nil, err
	}
	return file(v)
}
