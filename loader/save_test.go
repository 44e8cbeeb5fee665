package loader

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/heftai/heft/meta"
)

// vector is a vector to be written.
func vector(name string, values ...float32) NamedTensor {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return NamedTensor{Name: name, DType: meta.Float32, Shape: []int{len(values)}, Bytes: func() ([]byte, error) { return b, nil }}
}

// raw is a tensor of n bytes that differ by name and position.
func raw(name string, dtype meta.DType, shape ...int) NamedTensor {
	t := NamedTensor{Name: name, DType: dtype, Shape: shape}
	b := make([]byte, t.Size())
	for i := range b {
		b[i] = byte(i*31 + len(name)*7)
	}
	t.Bytes = func() ([]byte, error) { return b, nil }
	return t
}

func variety(fp8 bool) []NamedTensor {
	tensors := []NamedTensor{
		raw("model.embed.weight", meta.BFloat16, 4, 6),
		raw("a.scalar", meta.Float32),
		raw("<b>&\"\\", meta.Int64, 3),
		raw("empty", meta.Float16, 0, 3),
		raw("z.flag", meta.Bool, 5),
		raw("../../name", meta.Uint8, 7),
		raw("é", meta.Float64, 2),
	}
	if fp8 {
		tensors = append(tensors, raw("q", meta.Float8E4M3, 3, 3), raw("s", meta.Float8E8M0, 1), raw("f4", meta.Float4E2M1, 6))
	}
	return tensors
}

func TestSaveRoundTrip(t *testing.T) {
	for _, test := range []struct {
		fp8   bool
		limit int64
		files int
	}{{false, 0, 1}, {true, 0, 1}, {false, 50, 4}, {true, 1, 10}} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "new", "dir")
			want := variety(test.fp8)
			if err := Save(dir, slices.Values(want), SaveOptions{MaxShardSize: test.limit}); err != nil {
				t.Fatal(err)
			}
			ck, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer ck.Close()
			checkTensors(t, ck, want)
			if f := ck.Metadata()["format"]; f != "pt" {
				t.Errorf("format %q", f)
			}
			if entries, _ := os.ReadDir(dir); test.files > 1 && len(entries) != len(ck.Files())+1 || len(ck.Files()) < min(test.files, 2) {
				t.Errorf("files %v", entries)
			}
		})
	}
}

func checkTensors(t *testing.T, ck *Checkpoint, want []NamedTensor) {
	t.Helper()
	if ck.Len() != len(want) {
		t.Errorf("%d tensors, want %d", ck.Len(), len(want))
	}
	for _, w := range want {
		h, ok := ck.Lookup(w.Name)
		if !ok {
			t.Errorf("%q is missing", w.Name)
			continue
		}
		b, err := h.Bytes()
		wb, _ := w.Bytes()
		if err != nil || !bytes.Equal(b, wb) || h.DType != w.DType || !slices.Equal(h.Shape, w.Shape) {
			t.Errorf("%q: %v %v %x (%v)", w.Name, h.DType, h.Shape, b, err)
		}
		if !h.Aligned() {
			t.Errorf("%q is not aligned", w.Name)
		}
		p := make([]byte, len(wb))
		if n, err := h.ReadAt(p, 0); n != len(wb) || !bytes.Equal(p, wb) || err != nil && len(wb) > 0 {
			t.Errorf("%q: copied %d bytes, %v", w.Name, n, err)
		}
	}
}

func TestSaveReplacesEarlierSave(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "model-notes-of-mine.safetensors")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int64{0, 1, 50, 0} {
		want := variety(limit == 1)
		if err := Save(dir, slices.Values(want), SaveOptions{MaxShardSize: limit}); err != nil {
			t.Fatal(err)
		}
		ck, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		checkTensors(t, ck, want)
		ck.Close()
	}
	names, err := diskFolder(dir).names()
	if err != nil || !slices.Equal(names, []string{filepath.Base(other), "model.safetensors"}) {
		t.Errorf("left: %q, %v", names, err)
	}
}

// TestSaveOverItsOwnSource: the tensors may lie in the files that are replaced.
func TestSaveOverItsOwnSource(t *testing.T) {
	dir := t.TempDir()
	want := variety(true)
	if err := Save(dir, slices.Values(want), SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	ck, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	err = Save(dir, func(yield func(NamedTensor) bool) {
		for h := range ck.Tensors() {
			if !yield(h.Named()) {
				return
			}
		}
	}, SaveOptions{MaxShardSize: 40})
	if err != nil {
		t.Fatal(err)
	}
	again, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	checkTensors(t, again, want)
	checkTensors(t, ck, want) // mapped files live on without their names
	if ck.Verify() == nil {
		t.Error("the first checkpoint's file was removed, and Verify does not say so")
	}
}

func TestSaveFailureLeavesOldFiles(t *testing.T) {
	full := &fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}
	for _, fp8 := range []bool{false, true} {
		dir := t.TempDir()
		want := variety(false)
		if err := Save(dir, slices.Values(want), SaveOptions{}); err != nil {
			t.Fatal(err)
		}
		broken := variety(fp8)
		broken[3].Bytes = func() ([]byte, error) { return nil, full }
		short := variety(fp8)
		short[0].Bytes = func() ([]byte, error) { return make([]byte, 3), nil }
		twice := append(variety(fp8), vector("a.scalar", 1))
		reserved := append(variety(fp8), vector("__metadata__", 1))
		text := append(variety(fp8), vector("\xff", 1))
		half := append(variety(fp8), raw("half", meta.Float4E2M1, 3))
		for i, tensors := range [][]NamedTensor{broken, short, twice, reserved, text, half} {
			for _, limit := range []int64{0, 1} {
				err := Save(dir, slices.Values(tensors), SaveOptions{MaxShardSize: limit})
				var e *Error
				if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), "loader: ") {
					t.Fatalf("fault %d: %v", i, err)
				}
				if i == 0 && !errors.Is(err, syscall.ENOSPC) {
					t.Errorf("a full disk: %v", err)
				}
			}
		}
		names, _ := diskFolder(dir).names()
		if !slices.Equal(names, []string{"model.safetensors"}) {
			t.Errorf("left: %q", names)
		}
		ck, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		checkTensors(t, ck, want)
		ck.Close()
	}
}

// TestAnInterruptedSaveIsNotOpened: a process died after renaming one shard of two.
func TestAnInterruptedSaveIsNotOpened(t *testing.T) {
	dir := save(t, 1, vector("a", 1), vector("b", 1))
	index := filepath.Join(dir, "model.safetensors.index.json")
	if err := os.Rename(index, filepath.Join(dir, ".heft-tmp-0123456789abcdef-"+filepath.Base(index))); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("half of a save was opened: %v", err)
	}
	broken := vector("b", 2)
	broken.Bytes = func() ([]byte, error) { return nil, syscall.ENOSPC }
	if err := Save(dir, slices.Values([]NamedTensor{vector("a", 2), broken}), SaveOptions{MaxShardSize: 1}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a save on a full disk: %v", err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("half of a save was opened after another one failed: %v", err)
	}
	if err := Save(dir, slices.Values([]NamedTensor{vector("a", 2), vector("b", 2)}), SaveOptions{MaxShardSize: 1}); err != nil {
		t.Fatal(err)
	}
	if ck := open(t, dir); ck.Len() != 2 {
		t.Errorf("%d tensors after the next save", ck.Len())
	}
}

func TestSaveStem(t *testing.T) {
	dir := t.TempDir()
	if err := Save(dir, slices.Values(variety(false)), SaveOptions{Stem: "adapter_model", Metadata: map[string]string{}}); err != nil {
		t.Fatal(err)
	}
	ck, err := Open(filepath.Join(dir, "adapter_model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	if len(ck.Metadata()) != 0 {
		t.Errorf("metadata %v", ck.Metadata())
	}
	if err := Save(dir, slices.Values(variety(false)), SaveOptions{Stem: "../x"}); err == nil {
		t.Error("a stem led out of the folder")
	}
}
