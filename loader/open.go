package loader

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/gguf"
	"github.com/heftai/heft/internal/hubcache"
	"github.com/heftai/heft/internal/smallfile"
)

const (
	safetensorsSuffix = ".safetensors"
	indexSuffix       = ".safetensors.index.json"

	ggufAdvice = "it is a GGUF file: give it the suffix .gguf"
	jsonAdvice = "it has no weights: open the folder that it is in"
	binAdvice  = "PyTorch pickle files are not read, since loading one runs code in it: " +
		"take the model's safetensors files, or save it again with safe_serialization=True"
)

// Open opens the checkpoint at path and reads its headers. It reads no weight. path is
//   - a folder with model.safetensors, or with *.safetensors.index.json and its shards, or with
//     one other .safetensors file;
//   - a .safetensors file, or a *.safetensors.index.json;
//   - a .gguf file, or one part of a split one (NAME-00001-of-0000N.gguf), or a folder with one
//     GGUF model and no safetensors;
//   - a folder models--ORG--NAME of the hub cache, or one of its snapshots;
//   - ORG/NAME or ORG/NAME@REVISION of a model in the hub cache, unless there is such a file or
//     folder. serve pull and the Hugging Face libraries fill the cache; Open downloads nothing.
//     The cache's folder is found by HF_HUB_CACHE, HF_HOME or XDG_CACHE_HOME, as in these
//     libraries.
//
// The tensors of a GGUF file get the names that transformers gives them, and the slices of
// stacked experts become separate tensors. [Checkpoint.FS] has the config and the tokenizer that
// its metadata describe.
//
// If safetensors 0.8.0 would reject a file, Open returns an *Error with the file, the tensor and
// the reason. The caller closes the checkpoint.
func Open(path string) (*Checkpoint, error) {
	path, err := hubcache.Find(path)
	if err != nil {
		return nil, fromCache(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, &Error{File: path, Reason: "cannot be opened", Err: unpath(err)}
	}
	if info.IsDir() {
		dir, err := Folder(path)
		if err != nil {
			return nil, err
		}
		return openFolder(diskFolder(dir))
	}
	dir, name := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	return openNamed(diskFolder(filepath.Clean(dir)), name)
}

// OpenBytes opens a checkpoint of files in memory, keyed by base name as in a folder. Messages
// use name for the folder. The bytes are used in place and must not change before the checkpoint
// is closed.
func OpenBytes(name string, files map[string][]byte) (*Checkpoint, error) {
	return openFolder(memoryFolder{name, files})
}

// OpenFS opens a checkpoint at the root of fsys, such as an embedded one. It reads the safetensors
// files and the index into memory; see [OpenBytes].
func OpenFS(name string, fsys fs.FS) (*Checkpoint, error) {
	if fsys == nil {
		return nil, &Error{File: name, Reason: "got a nil file system"}
	}
	files := map[string][]byte{}
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, &Error{File: name, Reason: "cannot be opened", Err: unpath(err)}
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), safetensorsSuffix) && !strings.HasSuffix(e.Name(), indexSuffix) {
			continue
		}
		if files[e.Name()], err = fs.ReadFile(fsys, e.Name()); err != nil {
			return nil, &Error{File: name + "/" + e.Name(), Reason: "cannot be read", Err: unpath(err)}
		}
	}
	c, err := OpenBytes(name, files)
	if err != nil {
		return nil, err
	}
	c.fsys = fsys
	return c, nil
}

// A fileFolder provides the files of a checkpoint by base name.
type fileFolder interface {
	label() string
	dir() string
	names() ([]string, error)
	open(name string) (*File, error)
	// read returns the contents of a file of at most limit bytes.
	read(name string, limit int64) ([]byte, error)
}

type diskFolder string

func (d diskFolder) label() string { return string(d) }
func (d diskFolder) dir() string   { return string(d) }

func (d diskFolder) names() ([]string, error) {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return nil, &Error{File: string(d), Reason: "cannot be listed", Err: unpath(err)}
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (d diskFolder) open(name string) (*File, error) {
	return openFile(filepath.Join(string(d), name), name)
}

func (d diskFolder) read(name string, limit int64) ([]byte, error) {
	return readSmall(filepath.Join(string(d), name), limit)
}

// readSmall returns the contents of a regular file of at most limit bytes.
func readSmall(path string, limit int64) ([]byte, error) {
	b, err := smallfile.Read(path, limit)
	if err != nil {
		return nil, &Error{File: path, Reason: "cannot be read", Err: unpath(err)}
	}
	return b, nil
}

type memoryFolder struct {
	name  string
	files map[string][]byte
}

func (m memoryFolder) label() string { return m.name }
func (m memoryFolder) dir() string   { return "" }

func (m memoryFolder) names() ([]string, error) {
	var names []string
	for name := range m.files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

func (m memoryFolder) open(name string) (*File, error) {
	data, ok := m.files[name]
	if !ok {
		return nil, &Error{File: m.name + "/" + name, Reason: "cannot be opened", Err: fs.ErrNotExist}
	}
	return memoryFile(m.name, name, data), nil
}

func (m memoryFolder) read(name string, limit int64) ([]byte, error) {
	f, err := m.open(name)
	if err != nil {
		return nil, err
	}
	if f.Size > limit {
		return nil, failf(f.label(), "", "more than %d bytes", limit)
	}
	return f.data, nil
}

// openFolder selects the files that make up a folder's checkpoint and opens them.
func openFolder(from fileFolder) (*Checkpoint, error) {
	names, err := from.names()
	if err != nil {
		return nil, err
	}
	var shards, indexes, ggufs []string
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "."):
		case strings.HasSuffix(name, indexSuffix):
			indexes = append(indexes, name)
		case strings.HasSuffix(name, safetensorsSuffix):
			shards = append(shards, name)
		case gguf.IsFile(name):
			ggufs = append(ggufs, name)
		}
	}
	const single, index = "model" + safetensorsSuffix, "model" + indexSuffix
	switch {
	case slices.Contains(shards, single):
		return load(from, []string{single}, nil)
	case slices.Contains(indexes, index):
		return openIndex(from, index)
	case len(indexes) == 1:
		return openIndex(from, indexes[0])
	case len(indexes) > 1:
		return nil, failf(from.label(), "", "several indexes (%s): name the one to open", list(indexes))
	case slices.ContainsFunc(names, isStagedIndex):
		return nil, failf(from.label(), "", "a save was interrupted while it replaced files: save again")
	case len(shards) == 1 || completeSet(shards):
		return load(from, shards, nil)
	case len(shards) > 1:
		return nil, failf(from.label(), "", "several safetensors files (%s) and no index", list(shards))
	}
	if len(ggufs) > 0 {
		return openOneGGUF(from, ggufs)
	}
	for _, name := range names {
		if advice := refusal(name); advice != "" {
			return nil, failf(from.label(), "", "no safetensors file, but %s: %s", printable(name), advice)
		}
	}
	return nil, failf(from.label(), "", "no safetensors file in it: want *.safetensors or one .gguf file, as published with the model")
}

// isStagedIndex reports whether name is the temporary name of an index. If a save was interrupted
// between two renames, its presence shows that the shards do not belong together.
func isStagedIndex(name string) bool {
	return atomicfile.IsTemp(name) && strings.HasSuffix(name, indexSuffix)
}

// openNamed opens the file called name.
func openNamed(from fileFolder, name string) (*Checkpoint, error) {
	if strings.HasSuffix(name, indexSuffix) {
		return openIndex(from, name)
	}
	if gguf.IsFile(name) {
		return openGGUF(from, name)
	}
	advice := refusal(name)
	if strings.HasSuffix(name, ".json") {
		advice = jsonAdvice
	}
	if advice != "" {
		return nil, failf(filepath.Join(from.dir(), name), "", "%s", advice)
	}
	return load(from, []string{name}, nil)
}

// refusal says what to do about a file of an unsupported kind. It returns "" for other files.
func refusal(name string) string {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".bin", ".pt", ".pth", ".ckpt":
		return binAdvice
	}
	return ""
}

// completeSet reports whether the names are all parts of NAME-00001-of-0000N.safetensors.
func completeSet(names []string) bool {
	if len(names) == 0 {
		return false
	}
	stem, _, ok := strings.Cut(names[0], "-00001-of-")
	if !ok {
		return false
	}
	for i, name := range names { // sorted
		if name != shardName(stem, i+1, len(names)) {
			return false
		}
	}
	return true
}

// shardName returns the name of a shard's file.
func shardName(stem string, i, of int) string {
	return stem + "-" + five(i) + "-of-" + five(of) + safetensorsSuffix
}

func five(n int) string {
	s := strconv.Itoa(n)
	return strings.Repeat("0", max(0, 5-len(s))) + s
}

// list returns the first few names, for a message.
func list(names []string) string {
	const most = 4
	s := printable(strings.Join(names[:min(len(names), most)], ", "))
	if len(names) > most {
		s += ", and " + strconv.Itoa(len(names)-most) + " more"
	}
	return s
}

// Folder returns the folder that holds the files and config.json of a model: the snapshot for
// ORG/NAME or for a folder of the hub cache, the parent of a file, or path itself. See [Open].
func Folder(path string) (string, error) {
	dir, err := hubcache.Folder(path)
	return dir, fromCache(err)
}

// fromCache converts an error of hubcache to an *Error.
func fromCache(err error) error {
	var e *hubcache.Error
	if errors.As(err, &e) {
		return &Error{File: e.Path, Reason: e.Reason, Err: e.Err}
	}
	return err
}
