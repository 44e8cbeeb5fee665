package hostmem

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"unsafe"
)

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func TestBlock(t *testing.T) {
	page := int64(os.Getpagesize())
	for _, test := range []struct {
		n     int
		held  int64
		align uintptr
	}{
		{0, 0, 1},
		{1, page, Align},
		{5000, 2 * page, Align},
		{HugePage, HugePage, HugePage},
		{HugePage + 1, HugePage + page, HugePage},
	} {
		var l Ledger
		b, err := Alloc(&l, KV, test.n)
		if err != nil {
			t.Fatal(err)
		}
		if len(b.Bytes()) != test.n || cap(b.Bytes()) != test.n {
			t.Errorf("block of %d: len %d, cap %d", test.n, len(b.Bytes()), cap(b.Bytes()))
		}
		if l.Held(KV) != test.held || l.Total() != test.held {
			t.Errorf("block of %d: held %d, total %d, want %d", test.n, l.Held(KV), l.Total(), test.held)
		}
		if test.n > 0 {
			if a := address(b.Bytes()); a%test.align != 0 {
				t.Errorf("block of %d begins at %#x", test.n, a)
			}
			b.Bytes()[0], b.Bytes()[test.n-1] = 1, 2
		}
		if err := b.Release(); err != nil {
			t.Errorf("release of %d: %v", test.n, err)
		}
		if l.Total() != 0 || l.Peak(KV) != test.held {
			t.Errorf("after release: held %d, peak %d", l.Total(), l.Peak(KV))
		}
		if err := b.Release(); !errors.Is(err, ErrReleased) {
			t.Errorf("second release: %v", err)
		}
		if l.Total() != 0 {
			t.Errorf("second release counted: %d", l.Total())
		}
	}
	if _, err := Alloc(nil, Weights, -1); err == nil {
		t.Error("a negative size was given memory")
	}
}

func TestReleasedMemoryIsUnmapped(t *testing.T) {
	b, err := Alloc(nil, Other, 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	stale := b.Bytes()
	if err := b.Release(); err != nil {
		t.Fatal(err)
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() == nil {
			t.Error("released memory could still be read")
		}
	}()
	_ = stale[100] + stale[200]
	t.Logf("%d", stale[1])
}

func TestLedger(t *testing.T) {
	var l Ledger
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				l.Add(Cache, 3)
				l.Add(Weights, 1)
				l.Add(Cache, -2)
			}
		})
	}
	wg.Wait()
	if l.Held(Cache) != 4000 || l.Held(Weights) != 4000 || l.Total() != 8000 {
		t.Errorf("cache %d, weights %d, total %d", l.Held(Cache), l.Held(Weights), l.Total())
	}
	if p := l.Peak(Cache); p < 4000 || p > 12000 {
		t.Errorf("peak %d", p)
	}
	for _, p := range Purposes() {
		if p.String() == "" {
			t.Errorf("purpose %d has no name", p)
		}
	}
}

// pattern writes a file of n bytes that differ by position.
func pattern(t testing.TB, n int) (path string, data []byte) {
	t.Helper()
	data = make([]byte, n)
	for i := range data {
		data[i] = byte(i*7 + i>>8*13)
	}
	path = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, data
}

func TestMapping(t *testing.T) {
	path, data := pattern(t, 20_001)
	m, err := Map(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []Advice{WillNeed, Populate, DontNeed} {
		for _, r := range [][2]int64{{0, 20_001}, {1, 1}, {5000, 9000}, {20_001, 0}} {
			if err := m.Advise(r[0], r[1], a); err != nil && (a != Populate || runtime.GOOS == "linux") {
				t.Errorf("advice %d on %v: %v", a, r, err)
			}
		}
	}
	for _, r := range [][2]int64{{-1, 2}, {0, 20_002}, {20_002, 0}, {1 << 62, 1 << 62}} {
		if m.Advise(r[0], r[1], WillNeed) == nil {
			t.Errorf("advice outside the file: %v", r)
		}
	}
	if !bytes.Equal(m.Bytes(), data) {
		t.Error("mapped bytes differ from the file")
	}
	if err := m.Release(); err != nil {
		t.Error(err)
	}
	if err := m.Release(); !errors.Is(err, ErrReleased) {
		t.Errorf("second release: %v", err)
	}
}

func TestMapRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := Map(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := Map(dir); err == nil {
		t.Error("a folder was mapped")
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := Map(empty)
	if err != nil || len(m.Bytes()) != 0 || m.Release() != nil {
		t.Errorf("empty file: %v", err)
	}
}

func TestDirectRead(t *testing.T) {
	const size = 50_003
	path, data := pattern(t, size)
	for _, buffered := range []bool{false, true} {
		f, err := OpenDirect(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if f.Size() != size {
			t.Fatalf("size %d", f.Size())
		}
		f.refused.Store(buffered || !f.Direct())
		was := f.Direct()
		for _, r := range [][2]int64{{0, size}, {0, 1}, {4096, 4096}, {4095, 2}, {1, 8192}, {49_000, 1003}, {size - 1, 1}, {size, 0}} {
			b, err := Alloc(nil, Staging, int(WindowSize(r[0], r[1])))
			if err != nil {
				t.Fatal(err)
			}
			got, err := f.ReadAt(b.Bytes(), r[0], r[1])
			if err != nil || !bytes.Equal(got, data[r[0]:r[0]+r[1]]) {
				t.Errorf("direct %t %v: %d bytes, %v", was, r, len(got), err)
			}
			b.Release()
		}
		if f.Direct() != was {
			t.Error("a read gave up direct access")
		}
		testDirectRefuses(t, f)
	}
}

func testDirectRefuses(t *testing.T, f *DirectFile) {
	b, err := Alloc(nil, Staging, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	if _, err := f.ReadAt(b.Bytes(), f.Size()-5, 6); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("past the end: %v", err)
	}
	if _, err := f.ReadAt(b.Bytes(), f.Size()+5000, 6); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("beyond the end: %v", err)
	}
	if _, err := f.ReadAt(b.Bytes()[1:], 0, 6); err == nil {
		t.Error("an unaligned buffer was taken")
	}
	if _, err := f.ReadAt(b.Bytes()[:4096], 4000, 200); err == nil {
		t.Error("a short buffer was taken")
	}
	if _, err := f.ReadAt(b.Bytes(), -1, 6); err == nil {
		t.Error("a negative offset was taken")
	}
}

func TestWindowSize(t *testing.T) {
	for _, test := range [][3]int64{{0, 0, 0}, {0, 1, 4096}, {4095, 2, 8192}, {4096, 4096, 4096}, {1, 4096, 8192}} {
		if got := WindowSize(test[0], test[1]); got != test[2] {
			t.Errorf("WindowSize(%d, %d) = %d, want %d", test[0], test[1], got, test[2])
		}
	}
}

func BenchmarkAllocRelease(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		block, err := Alloc(nil, Staging, 4<<20)
		if err != nil {
			b.Fatal(err)
		}
		block.Release()
	}
}

// TestShortDirectReadsAreNotTheEnd: file systems over a network may read less than was asked,
// and not in whole blocks; only what a buffered read finds missing is missing.
func TestShortDirectReadsAreNotTheEnd(t *testing.T) {
	want := make([]byte, 64<<10+100)
	for i := range want {
		want[i] = byte(i * 7 >> 3)
	}
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, want, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := OpenDirect(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.refused.Store(false)
	for _, most := range []int{1, 1000, 4096, 8192, 10000} {
		f.read = func(_ *os.File, buf []byte, off int64) (int, error) {
			n := copy(buf[:min(len(buf), most)], want[min(off, int64(len(want))):])
			return n, nil
		}
		b, err := Alloc(nil, Other, int(WindowSize(5, int64(len(want)))))
		if err != nil {
			t.Fatal(err)
		}
		got, err := f.ReadAt(b.Bytes(), 5, int64(len(want))-5)
		if err != nil || !bytes.Equal(got, want[5:]) {
			t.Errorf("reads of %d bytes: %d of %d bytes, %v", most, len(got), len(want)-5, err)
		}
		if _, err := f.ReadAt(b.Bytes(), 5, int64(len(want))); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("reads of %d bytes: past the end: %v", most, err)
		}
		if err := b.Release(); err != nil {
			t.Fatal(err)
		}
	}
}
