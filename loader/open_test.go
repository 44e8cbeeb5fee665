package loader

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unsafe"

	"github.com/heftai/heft/meta"
)

var _ meta.CheckpointHeader = (*Checkpoint)(nil)

// save writes tensors and returns their folder.
func save(t testing.TB, limit int64, tensors ...NamedTensor) string {
	t.Helper()
	dir := t.TempDir()
	if err := Save(dir, slices.Values(tensors), SaveOptions{MaxShardSize: limit}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// open opens path and closes it with the test.
func open(t testing.TB, path string) *Checkpoint {
	t.Helper()
	ck, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	return ck
}

func TestOpenPaths(t *testing.T) {
	single, sharded := save(t, 0, vector("a", 1), vector("b", 2)), save(t, 1, vector("a", 1), vector("b", 2))
	for _, path := range []string{
		single, single + "/", filepath.Join(single, "model.safetensors"),
		sharded, filepath.Join(sharded, "model.safetensors.index.json"),
	} {
		ck := open(t, path)
		if names := slices.Sorted(ck.Names()); !slices.Equal(names, []string{"a", "b"}) {
			t.Errorf("%s: %q", path, names)
		}
		if dir := ck.Dir(); dir != filepath.Clean(single) && dir != single+"/" && dir != sharded {
			t.Errorf("%s: folder %s", path, dir)
		}
	}
	one := open(t, filepath.Join(sharded, "model-00001-of-00002.safetensors"))
	if one.Len() != 1 {
		t.Errorf("one shard holds %d tensors", one.Len())
	}
	// Without the index a complete set of shards is as good, an incomplete one is not.
	if err := os.Remove(filepath.Join(sharded, "model.safetensors.index.json")); err != nil {
		t.Fatal(err)
	}
	if ck := open(t, sharded); ck.Len() != 2 {
		t.Errorf("shards without index: %d tensors", ck.Len())
	}
	copyFile(t, filepath.Join(single, "model.safetensors"), filepath.Join(sharded, "other.safetensors"))
	if _, err := Open(sharded); err == nil {
		t.Error("unrelated files were opened together")
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, b string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(b), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, test := range []struct{ path, want string }{
		{filepath.Join(dir, "none"), "no such file"},
		{write("gguf/x.gguf", "GGUF"), "the file is cut"},
		{filepath.Join(dir, "gguf"), "the file is cut"},
		{write("g.safetensors", "GGUF\x03\x00\x00\x00aaaaaaaaaaaaaa"), "suffix .gguf"},
		{write("bin/pytorch_model.bin", "PK"), "pickle"},
		{filepath.Join(dir, "bin"), "pickle"},
		{write("json/config.json", "{}"), "it has no weights: open the folder that it is in"},
		{filepath.Dir(write("empty/readme.md", "")), "no safetensors file"},
	} {
		ck, err := Open(test.path)
		if err == nil {
			ck.Close()
			t.Errorf("%s was opened", test.path)
			continue
		}
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "loader: ") {
			t.Errorf("%s: %v, want %q", test.path, err, test.want)
		}
	}
}

func TestIndexWithAbsentShard(t *testing.T) {
	dir := save(t, 1, vector("a", 1), vector("b", 2))
	if err := os.Remove(filepath.Join(dir, "model-00002-of-00002.safetensors")); err != nil {
		t.Fatal(err)
	}
	_, err := Open(dir)
	if want := "model.safetensors.index.json: 1 of 2 shards are missing, download the whole model (serve pull ORG/NAME does): model-00002-of-00002.safetensors: "; !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v", err)
	}
}

// TestTensorInTwoShards: the index decides where both hold it, and must.
func TestTensorInTwoShards(t *testing.T) {
	encode := func(tensors ...NamedTensor) []byte {
		b, err := os.ReadFile(filepath.Join(save(t, 0, tensors...), "model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	files := map[string][]byte{"a.safetensors": encode(vector("x", 1)), "b.safetensors": encode(vector("x", 2), vector("y", 3))}
	for index, want := range map[string]byte{
		`{"weight_map":{"x":"a.safetensors","y":"b.safetensors"}}`:                0x80, // 1 is 3f80
		`{"weight_map":{"x":"b.safetensors","z":"a.safetensors"}}`:                0x00, // 2 is 4000
		`{"weight_map":{"y":"b.safetensors","z":"a.safetensors"}}`:                0xff,
		`{"weight_map":{"x":"a.safetensors","x":"b.safetensors"}}`:                0xff,
		`{"weight_map":{"x":"a.safetensors"},"weight_map":{"x":"b.safetensors"}}`: 0xff,
		`{"weight_map":{}}`:                        0xff,
		`{"metadata":{}}`:                          0xff,
		`{"weight_map":["a.safetensors"]}`:         0xff,
		`{"weight_map":{"x":"./a.safetensors"}}`:   0xff,
		`{"weight_map":{"x":"..\\a.safetensors"}}`: 0xff,
		`{"weight_map":{"x":"C:a.safetensors"}}`:   0xff,
		`{"weight_map":{"x":null}}`:                0xff,
		`{"weight_map":{"x":"b.safetensors","y":"b.safetensors"},"metadata":{"total_size":"much","x":1e999}} `: 0x00,
	} {
		files["model.safetensors.index.json"] = []byte(index)
		ck, err := OpenBytes("demo", files)
		if want == 0xff {
			if err == nil {
				t.Errorf("%s was taken", index)
			} else if !strings.HasPrefix(err.Error(), "loader: demo/") {
				t.Errorf("%s: %v", index, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", index, err)
			continue
		}
		h, _ := ck.Lookup("x")
		if b, err := h.Bytes(); err != nil || b[2] != want {
			t.Errorf("%s: x is % x, %v", index, b, err)
		}
	}
}

func TestOpenInMemory(t *testing.T) {
	dir := save(t, 1, vector("a", 1), vector("b", 2))
	fsys := fstest.MapFS{"config.json": {Data: []byte("{}")}}
	for _, name := range []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		fsys[name] = &fstest.MapFile{Data: b}
	}
	ck, err := OpenFS("demo", fsys)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	h, ok := ck.Lookup("b")
	if !ok || ck.Dir() != "" || ck.Verify() != nil {
		t.Fatalf("%v %q %v", ok, ck.Dir(), ck.Verify())
	}
	if path, off, size := h.Location(); path != "" || off <= 8 || size != 4 {
		t.Errorf("source %q %d %d", path, off, size)
	}
	b, err := h.Bytes()
	if err != nil || binary.LittleEndian.Uint32(b) != 0x40000000 || cap(b) != 4 {
		t.Errorf("% x, %v", b, err)
	}
	if f, ok := ck.FileAt(uintptr(unsafe.Pointer(&b[0]))); !ok || f != h.File {
		t.Errorf("the address belongs to %v", f)
	}
	if err := h.Advise(0, 4, WillNeed); err != nil {
		t.Error(err)
	}
}

func TestHubCache(t *testing.T) {
	hub := t.TempDir()
	repo := filepath.Join(hub, "models--org--name")
	const revision = "0123456789abcdef"
	snapshot := filepath.Join(repo, "snapshots", revision)
	for _, dir := range []string{"blobs", "refs", "snapshots/" + revision} {
		if err := os.MkdirAll(filepath.Join(repo, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	from := save(t, 1, vector("a", 1), vector("b", 2))
	names, _ := diskFolder(from).names()
	for i, name := range names {
		blob := "blob" + string(rune('a'+i))
		copyFile(t, filepath.Join(from, name), filepath.Join(repo, "blobs", blob))
		if err := os.Symlink(filepath.Join("..", "..", "blobs", blob), filepath.Join(snapshot, name)); err != nil {
			t.Fatal(err)
		}
	}
	ref := filepath.Join(repo, "refs", "main")
	for _, test := range []struct {
		ref string // content of refs/main; "-" for none
		ok  bool
	}{{"-", true}, {revision, true}, {revision + "\n", true}, {"gone", false}, {"../..", false}, {"", false}, {strings.Repeat("r", 1000), false}} {
		os.Remove(ref)
		if test.ref != "-" {
			if err := os.WriteFile(ref, []byte(test.ref), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		ck, err := Open(repo)
		if (err == nil) != test.ok {
			t.Errorf("refs/main %q: %v", test.ref, err)
		}
		if err == nil {
			if ck.Dir() != snapshot || ck.Len() != 2 || ck.Verify() != nil {
				t.Errorf("%s with %d tensors, %v", ck.Dir(), ck.Len(), ck.Verify())
			}
			ck.Close()
		}
	}
	if ck := open(t, snapshot); ck.Len() != 2 {
		t.Error("the snapshot itself does not open")
	}
	if dir, err := Folder(filepath.Join(from, names[0])); err != nil || dir != from {
		t.Errorf("folder of a file: %s, %v", dir, err)
	}
}

// TestForeignFilesAreNamed: the error says that a file is not safetensors, not that it has
// a header of 2336927755350992246 bytes.
func TestForeignFilesAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"version https://git-lfs.github.com/spec/v1\noid sha256:00\n": "Git LFS",
		"<!DOCTYPE html><html>Access denied</html>":                   `begins with the text "<!DOCTYP"`,
		"{\n  \"architectures\": []}":                                 "begins with the text",
		"GGUF\x03\x00\x00\x00\x00":                                    "GGUF",
		"\xff\xff\xff\xff\xff\xff\xff\xff\x00":                        "header of 18446744073709551615 bytes",
	} {
		path := filepath.Join(t.TempDir(), "model.safetensors")
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		c, err := Open(path)
		if err == nil {
			c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%.10q: %v, want %s", text, err, want)
		}
	}
}

// TestUnreadableFileIsNamedOnce: the error of a file without permission says so once.
func TestUnreadableFileIsNamedOnce(t *testing.T) {
	err := unread("reading the header", &Error{File: "x", Reason: "cannot be opened", Err: fs.ErrPermission})
	if text := err.Error(); strings.Count(text, "loader") != 1 || !strings.Contains(text, "permission") {
		t.Error(text)
	}
}

func TestTruncatedFile(t *testing.T) {
	path := filepath.Join(save(t, 0, raw("w", meta.Float32, 1<<16)), "model.safetensors")
	early, late, gone := open(t, path), open(t, path), open(t, path)
	h, _ := early.Lookup("w")
	mapped, err := h.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 9000); err != nil {
		t.Fatal(err)
	}
	wantCut := func(what string, err error) {
		t.Helper()
		var e *Error
		if !errors.As(err, &e) || e.File != path || !strings.Contains(err.Error(), "cut to 9000 bytes") {
			t.Errorf("%s: %v", what, err)
		}
	}
	wantCut("verify", early.Verify())
	n, err := h.ReadAt(make([]byte, 1<<17), 1<<17)
	wantCut("copying", err)
	if n != 0 {
		t.Errorf("%d bytes came", n)
	}
	h2, _ := late.Lookup("w")
	_, err = h2.Bytes()
	wantCut("mapping", err)
	wantCut("advice", h2.Advise(0, 1, WillNeed))

	// The error of a compute thread that touches the lost part.
	func() {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() {
			fault, ok := recover().(interface{ Addr() uintptr })
			if !ok {
				t.Fatal("touching the lost part was no fault")
			}
			if f, ok := early.FileAt(fault.Addr()); !ok || f.Path != path {
				t.Errorf("fault at %#x belongs to %v", fault.Addr(), f)
			}
		}()
		t.Log(mapped[1<<17])
	}()
	if _, ok := early.FileAt(1); ok {
		t.Error("address 1 belongs to a file")
	}

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	h3, _ := gone.Lookup("w")
	if _, err := h3.Bytes(); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "tensor w") {
		t.Errorf("a file that is gone: %v", err)
	}
}

func TestReplacedFile(t *testing.T) {
	dir := save(t, 0, vector("w", 1))
	ck := open(t, dir)
	if err := Save(dir, slices.Values([]NamedTensor{vector("w", 2)}), SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := ck.Verify(); err == nil || !strings.Contains(err.Error(), "replaced") {
		t.Errorf("verify: %v", err)
	}
	h, _ := ck.Lookup("w")
	if _, err := h.Bytes(); err == nil {
		t.Error("the other file's bytes came")
	}
}

func TestTensorReadAt(t *testing.T) {
	ck := open(t, save(t, 0, raw("w", meta.Uint8, 10), raw("odd", meta.Float16, 1)))
	h, _ := ck.Lookup("w")
	want, err := h.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(io.NewSectionReader(h, 0, h.Size))
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("% x, %v", got, err)
	}
	p := make([]byte, 8)
	if n, err := h.ReadAt(p, 5); n != 5 || err != io.EOF || !slices.Equal(p[:5], want[5:]) {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := h.ReadAt(p, 10); n != 0 || err != io.EOF {
		t.Errorf("at the end: %d, %v", n, err)
	}
	if _, err := h.ReadAt(p, -1); err == nil {
		t.Error("negative offset")
	}
	if h.Advise(5, 6, WillNeed) == nil || h.Advise(0, 10, DontNeed) != nil {
		t.Error("advice")
	}
	if h.Elements() != 10 {
		t.Errorf("%d elements", h.Elements())
	}
}

// TestUnalignedTensor: offsets need no alignment, and the handle says so.
func TestUnalignedTensor(t *testing.T) {
	header := `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}}`
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	file = append(file, 9, 0, 0, 0x80, 0x3f)
	ck, err := OpenBytes("m", map[string][]byte{"x.safetensors": file})
	if err != nil {
		t.Fatal(err)
	}
	h, _ := ck.Lookup("b")
	if b, err := h.Bytes(); err != nil || h.Aligned() == (h.Offset%4 != 0) || b[3] != 0x3f {
		t.Errorf("% x at %d, aligned %t, %v", b, h.Offset, h.Aligned(), err)
	}
}
