package residency

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/stored"
	"github.com/heftai/heft/loader"
)

// readAll reads a load of all tensors into a slot that contains stale bytes, piece by piece.
func readAll(t *testing.T, s *Store, all []*loader.Tensor) (slot []byte, l *load, err error) {
	t.Helper()
	var regions []region
	for _, tensor := range all {
		regions = append(regions, newRegion(tensor, 0, tensor.Size))
	}
	l = newLoad(regions, true)
	l.cut(maxRead)
	block, err := s.arena.Alloc(hostmem.Staging, int(l.slot))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = block.Release() })
	slot = block.Bytes()
	copy(slot, bytes.Repeat([]byte{0xee}, len(slot)))
	for i := range l.pieces {
		if _, err = s.readPiece(l, i, slot); err != nil {
			return slot, l, err
		}
	}
	return slot, l, nil
}

// newReadingStore is a store that reads files and holds nothing else.
func newReadingStore(t *testing.T) *Store {
	t.Helper()
	s := &Store{arena: new(hostmem.Arena), files: files{open: map[string]*hostmem.DirectFile{}}}
	s.opener = s.open
	t.Cleanup(s.files.close)
	return s
}

// TestAShortReadIsAnErrorWithItsPlace: a file that ends before its header says is an error that names the file,
// the tensor and the offset, whether it was cut before or between reads; whole tensors before the cut have
// their own bytes.
func TestAShortReadIsAnErrorWithItsPlace(t *testing.T) {
	_, all := savedTensors(t, 20000, 30000)
	s := newReadingStore(t)
	slot, l, err := readAll(t, s, all)
	if err != nil {
		t.Fatal(err)
	}
	for i, tensor := range all {
		if got, want := slot[l.places[i]:][:tensor.Size], bytes.Repeat([]byte{byte(i + 1)}, int(tensor.Size)); !bytes.Equal(got, want) {
			t.Errorf("tensor %d has other bytes", i)
		}
	}
	path, offset, _ := all[1].Location()
	if err := os.Truncate(path, offset+100); err != nil {
		t.Fatal(err)
	}
	_, _, err = readAll(t, s, all)
	if err == nil {
		t.Fatal("a short file gave no error")
	}
	if text := err.Error(); !strings.Contains(text, path) {
		t.Errorf("the error does not name the file: %v", err)
	}
	err = (&extent{region: newRegion(all[1], 0, all[1].Size)}).fill(piece{0, 0, all[1].Size + offset%blockSize}, slot, s.opener)
	if place := fmt.Sprintf("%s at byte %d", all[1].Name, offset&^(blockSize-1)); !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), place) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want the end of %s and %q", err, path, place)
	}
}

// TestAFileThatChangesDuringAReadIsNoticed: bytes of the same size that are written while a read is under way
// never arrive as those of the checkpoint.
func TestAFileThatChangesDuringAReadIsNoticed(t *testing.T) {
	_, all := savedTensors(t, 20000, 30000)
	s := newReadingStore(t)
	path, offset, _ := all[1].Location()
	s.opener = func(e *extent) (*hostmem.DirectFile, error) {
		f, err := s.open(e)
		if err != nil || e.tensor != all[1] {
			return f, err
		}
		w, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		_, err = w.WriteAt(bytes.Repeat([]byte{9}, 5000), offset)
		later := time.Now().Add(time.Hour)
		return f, errors.Join(err, w.Close(), os.Chtimes(path, later, later))
	}
	if _, _, err := readAll(t, s, all); !errors.Is(err, loader.ErrChanged) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want %v with the name of the file", err, loader.ErrChanged)
	}
}

// cutFile cuts a file short. The function that it returns writes the same inode as it was, with its date.
func cutFile(t *testing.T, path string, size int64) (mend func()) {
	t.Helper()
	whole, err := os.ReadFile(path)
	info, err2 := os.Stat(path)
	if err := errors.Join(err, err2, os.Truncate(path, size)); err != nil {
		t.Fatal(err)
	}
	return func() {
		w, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Write(whole)
		if err = errors.Join(err, w.Close(), os.Chtimes(path, info.ModTime(), info.ModTime())); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAFailedCopyIsNotUsed: a segment that is read straight into memory is published only if all of its bytes
// have arrived. After a failed read, or with a file that was cut, it takes no memory.
func TestAFailedCopyIsNotUsed(t *testing.T) {
	_, all := savedTensors(t, 400000, 300000)
	s := newReadingStore(t)
	s.arena.Ledger, s.mover, s.policy = new(hostmem.Ledger), new(Mover), new(Policy)
	s.copies.all = &s.policy.copied
	s.mover.Tune(1, 64<<10)
	broken := errors.New("broken")
	reads, fail := 0, 2 // one worker reads
	s.mover.Intercept = func(read func() error) error {
		if reads++; reads > fail {
			return broken
		}
		return read()
	}
	s.mover.open()
	t.Cleanup(s.mover.close)
	g := &segment{path: "g", converted: []bool{false, false}}
	for _, tensor := range all {
		g.pieces = append(g.pieces, stored.Piece{Ranges: []stored.Range{{Tensor: tensor, Size: tensor.Size}}, Size: tensor.Size})
	}
	fails := func(why string) error {
		t.Helper()
		_, err := s.makeCopy(t.Context(), g, Demand, s.readInto)
		if err == nil || g.copied.Load() != nil || s.arena.Ledger.Total() != 0 || s.policy.copied.Load() != 0 {
			t.Fatalf("%s: %v; the copy is used: %v, %d bytes are held", why, err, g.copied.Load() != nil, s.arena.Ledger.Total())
		}
		return err
	}
	for fail < 7 {
		if err := fails("a failing disk"); !errors.Is(err, broken) {
			t.Errorf("got %v, want %v", err, broken)
		}
		reads, fail = 0, fail+1
	}
	fail = 1 << 30
	path, offset, _ := all[1].Location()
	mend := cutFile(t, path, offset+70000)
	if err := fails("a cut file"); !strings.Contains(err.Error(), path) {
		t.Errorf("the error does not name the file: %v", err)
	}
	mend()
	c, err := s.makeCopy(t.Context(), g, Demand, s.readInto)
	if err != nil {
		t.Fatalf("after all was mended: %v", err)
	}
	for i, part := range c.parts {
		if !bytes.Equal(part.Data, bytes.Repeat([]byte{byte(i + 1)}, len(part.Data))) || int64(len(part.Data)) != all[i].Size {
			t.Errorf("tensor %d has other bytes", i)
		}
	}
	g.drop()
}
