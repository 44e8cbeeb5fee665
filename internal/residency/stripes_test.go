package residency

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/heftai/heft/internal/hostmem"
)

// TestPartsOfLinesAreJoined: parts of lines are joined in order, however far apart they are, also if they exceed the
// memory of a read, and in any number of reads.
func TestPartsOfLinesAreJoined(t *testing.T) {
	for _, c := range []struct{ line, pitch, lines, off int }{
		{128, 512, 100, 13}, {128, 512, 3, 0}, {1000, 64 << 10, 20, 4097}, {30 << 10, 64 << 10, 9, 70}, {48 << 10, 48 << 10, 5, 1},
	} {
		data := make([]byte, c.off+c.pitch*c.lines)
		rng := rand.New(rand.NewPCG(uint64(c.line), uint64(c.pitch)))
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := hostmem.OpenDirect(path)
		if err != nil {
			t.Fatal(err)
		}
		l := newStripes([]region{{path: path, off: int64(c.off), size: int64(c.line * c.lines), lines: c.lines, pitch: int64(c.pitch)}})
		block, err := new(hostmem.Arena).Alloc(hostmem.Staging, int(l.slot))
		if err != nil {
			t.Fatal(err)
		}
		slot := block.Bytes()
		l.cut(1 << 20)
		for k := range l.pieces {
			scratch := slot[l.scratch+int64(k)*l.room:][:l.room]
			if _, err := l.extents[0].fillLines(k, slot, scratch, func(*extent) (*hostmem.DirectFile, error) { return file, nil }); err != nil {
				t.Fatalf("%+v: %v", c, err)
			}
		}
		for i := range c.lines {
			if want := data[c.off+i*c.pitch:][:c.line]; !bytes.Equal(slot[i*c.line:][:c.line], want) {
				t.Errorf("%+v: line %d differs", c, i)
			}
		}
		_ = block.Release()
		_ = file.Close()
	}
}
