package loader

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/meta"
)

// offloadFixture is infer/offload/expected.json.
type offloadFixture struct {
	Tensors map[string]struct {
		DType    string
		Shape    []int
		BytesHex string `json:"bytes_hex"`
		File     int64  `json:"file_bytes"`
	}
	WriteErrors map[string]json.RawMessage `json:"write_errors"`
}

func TestGoldenOffload(t *testing.T) {
	cases := 0
	defer func() { golden.Count(t, "infer/offload", cases) }()
	for _, manifest := range golden.Glob(t, "infer/offload/expected*.json") {
		var want offloadFixture
		golden.JSON(t, manifest, &want)
		folder := filepath.Join(filepath.Dir(manifest), "folder")
		ck, err := OpenOffload(folder)
		if err != nil {
			t.Fatal(err)
		}
		defer ck.Close()
		if ck.Len() != len(want.Tensors) {
			t.Errorf("%d tensors, want %d", ck.Len(), len(want.Tensors))
		}
		for name, w := range want.Tensors {
			cases++
			t.Run(name, func(t *testing.T) {
				h, ok := ck.Lookup(name)
				if !ok {
					t.Fatal("not found")
				}
				b, err := h.Bytes()
				if err != nil || hex.EncodeToString(b) != w.BytesHex || h.DType.String() != w.DType || !slices.Equal(h.Shape, w.Shape) {
					t.Errorf("%v %v %x (%v), want %s %v %s", h.DType, h.Shape, b, err, w.DType, w.Shape, w.BytesHex)
				}
			})
		}
		checkOffloadWritten(t, ck, folder)
		for name, raw := range want.WriteErrors {
			cases++
			t.Run("write "+name, func(t *testing.T) { checkOffloadName(t, name, raw) })
		}
	}
}

// checkOffloadWritten writes the weights that were read and compares file by file with the folder.
func checkOffloadWritten(t *testing.T, ck *Checkpoint, folder string) {
	t.Helper()
	dir := t.TempDir()
	err := WriteOffload(dir, func(yield func(NamedTensor) bool) {
		for h := range ck.Tensors() {
			if !yield(h.Named()) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != ck.Len()+1 {
		t.Errorf("%d files, want %d: %v", len(files), ck.Len()+1, err)
	}
	for _, f := range files {
		got, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		want, err := golden.Read(filepath.Join(folder, f.Name()))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s differs from the reference's: %v", f.Name(), err)
		}
	}
}

// checkOffloadName writes an empty tensor under a name that the reference writes or
// fails on.
func checkOffloadName(t *testing.T, name string, raw json.RawMessage) {
	dir := t.TempDir()
	err := WriteOffload(dir, slices.Values([]NamedTensor{{
		Name: name, DType: meta.Float32, Shape: []int{0},
		Bytes: func() ([]byte, error) { return nil, nil },
	}}))
	if written := string(raw) == `"written"`; (err == nil) != written {
		t.Fatalf("%v, the reference: %s", err, raw)
	}
	if err != nil {
		if files, _ := os.ReadDir(dir); len(files) != 0 {
			t.Errorf("%v was left behind", files)
		}
		return
	}
	info, err := os.Stat(filepath.Join(dir, name+".dat"))
	if err != nil || info.Size() != 1 {
		t.Errorf("an empty tensor's file: %v, %v", info, err)
	}
	ck, err := OpenOffload(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	if h, ok := ck.Lookup(name); !ok || h.Size != 0 {
		t.Errorf("read back: %+v", h)
	} else if b, err := h.Bytes(); err != nil || len(b) != 0 {
		t.Errorf("read back: %d bytes, %v", len(b), err)
	}
}

func TestOffloadKeepsOlderEntries(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b", "a", "b"} {
		if err := WriteOffload(dir, slices.Values([]NamedTensor{vector(name, 1, 2)})); err != nil {
			t.Fatal(err)
		}
	}
	ck, err := OpenOffload(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	if names := slices.Collect(ck.Names()); !slices.Equal(names, []string{"b", "a"}) {
		t.Errorf("names %q", names)
	}
}

func TestOffloadRefusesHostileNames(t *testing.T) {
	outside := t.TempDir()
	dir := filepath.Join(outside, "folder")
	for _, name := range []string{"../x", "a/b", `a\b`, "/etc/passwd", "a\x00b", strings.Repeat("n", 300), "\xff"} {
		if err := WriteOffload(dir, slices.Values([]NamedTensor{vector(name, 1)})); err == nil {
			t.Errorf("%q was written", name)
		}
		key, _ := json.Marshal(name)
		index := `{` + string(key) + `:{"dtype":"float32","shape":[1]}}`
		if err := os.WriteFile(filepath.Join(dir, "index.json"), []byte(index), 0o600); err != nil {
			t.Fatal(err)
		}
		if ck, err := OpenOffload(dir); err == nil {
			ck.Close()
			t.Errorf("%q was opened", name)
		}
		os.Remove(filepath.Join(dir, "index.json"))
	}
	files, _ := os.ReadDir(outside)
	inside, _ := os.ReadDir(dir)
	if len(files) != 1 || len(inside) != 0 {
		t.Errorf("left behind: %v, %v", files, inside)
	}
}

func TestOffloadIntoSafetensors(t *testing.T) {
	dir := t.TempDir()
	if err := Save(dir, slices.Values([]NamedTensor{vector("w", 1, 2, 3)}), SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "model.safetensors")
	for _, test := range []struct {
		entry string
		ok    bool
	}{
		{`{"safetensors_file":"FILE","weight_name":"w","dtype":"float32"}`, true},
		{`{"safetensors_file":"FILE","dtype":"float16"}`, false}, // no tensor m.w in it
		{`{"safetensors_file":"FILE","weight_name":"none"}`, false},
		{`{"safetensors_file":"/dev/zero","weight_name":"w"}`, false},
		{`{"safetensors_file":1,"weight_name":"w"}`, false},
		{`{"safetensors_file":null,"weight_name":"w"}`, false},
		{`{"dtype":"float33","shape":[]}`, false},
		{`{"dtype":"float32","shape":[-1]}`, false},
		{`{"dtype":"float32","shape":null}`, false},
		{`{"dtype":"float32","shape":[9223372036854775808,0]}`, false},
		{`[]`, false},
	} {
		index := `{"m.w":` + strings.ReplaceAll(test.entry, "FILE", file) + `}`
		if err := os.WriteFile(filepath.Join(dir, "index.json"), []byte(index), 0o600); err != nil {
			t.Fatal(err)
		}
		ck, err := OpenOffload(dir)
		if (err == nil) != test.ok {
			t.Errorf("%s: %v", test.entry, err)
		}
		var e *Error
		if err != nil && (!errors.As(err, &e) || e.Tensor != "m.w") {
			t.Errorf("%s: error without the tensor: %v", test.entry, err)
		}
		if err != nil {
			continue
		}
		h, _ := ck.Lookup("m.w")
		if b, err := h.Bytes(); err != nil || len(b) != 12 {
			t.Errorf("%d bytes, %v", len(b), err)
		}
		ck.Close()
	}
}

func TestOffloadChecksSizes(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenOffload(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no index: %v", err)
	}
	if err := WriteOffload(dir, slices.Values([]NamedTensor{vector("w", 1, 2)})); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 7, 9} {
		if err := os.WriteFile(filepath.Join(dir, "w.dat"), make([]byte, n), 0o600); err != nil {
			t.Fatal(err)
		}
		if ck, err := OpenOffload(dir); err == nil {
			ck.Close()
			t.Errorf("a file of %d bytes stood for 8", n)
		}
	}
	os.Remove(filepath.Join(dir, "w.dat"))
	if _, err := OpenOffload(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
