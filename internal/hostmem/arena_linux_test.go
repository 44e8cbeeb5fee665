package hostmem

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// inMemory returns how many bytes of b, whole pages, are in memory.
func inMemory(t *testing.T, b []byte) (n int) {
	t.Helper()
	pages := make([]byte, (len(b)+4095)/4096)
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), uintptr(unsafe.Pointer(&pages[0]))); errno != 0 {
		t.Fatal(errno)
	}
	for _, p := range pages {
		n += int(p&1) * 4096
	}
	return n
}

func fill(b []byte) {
	for i := range b {
		b[i] = 1
	}
}

// TestArenaReturnsMemoryAtOnce: the pages of a released block, and the rest of huge pages without a block.
func TestArenaReturnsMemoryAtOnce(t *testing.T) {
	a := Arena{Size: 64 << 20}
	var blocks []*Block
	for _, n := range []int{5<<20 + 4096, 7 << 20, 8192, 3 << 20} {
		b, err := a.Alloc(Weights, n)
		if err != nil {
			t.Fatal(err)
		}
		fill(b.Bytes())
		blocks = append(blocks, b)
	}
	defer func() { _ = blocks[0].Release() }()
	middle, small, last := blocks[1].Bytes(), blocks[2].Bytes(), blocks[3].Bytes()
	if address(middle) != address(blocks[0].Bytes())+5<<20+4096 {
		t.Error("blocks do not lie next to each other")
	}
	_ = blocks[1].Release()
	if n := inMemory(t, middle); n != 0 {
		t.Errorf("%d bytes of a released block are in memory", n)
	}
	if inMemory(t, blocks[0].Bytes()) != len(blocks[0].Bytes()) || inMemory(t, last) != len(last) {
		t.Error("the neighbours have lost memory")
	}
	_ = blocks[2].Release()
	if small[0] != 0 {
		t.Error("a small block was not cleared")
	}
	_ = blocks[3].Release()
	rest := a.spaces[0].memory[8<<20 : 24<<20]
	if n := inMemory(t, rest); n != 0 {
		t.Errorf("%d bytes are in memory behind the last block", n)
	}
	if got := a.Stats(); got.HugePages != 3 || got.Blocks != 1 {
		t.Errorf("%+v, want 3 huge pages with one block", got)
	}
}

// TestArenaFillsHoles: a released block's place is used again before the end of the region grows.
func TestArenaFillsHoles(t *testing.T) {
	var a Arena
	var blocks []*Block
	for range 10 {
		b, err := a.Alloc(Weights, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, b)
	}
	at := address(blocks[4].Bytes())
	_ = blocks[4].Release()
	b, err := a.Alloc(Staging, 1<<20)
	if err != nil || address(b.Bytes()) != at {
		t.Errorf("got a block at %#x, want %#x: %v", address(b.Bytes()), at, err)
	}
	blocks[4] = b
	for _, b := range blocks {
		_ = b.Release()
	}
}

// TestArenaAlignsLargeBlocksOfOthers: weights lie next to each other; a KV cache begins on a huge-page
// boundary, and its small pages do not stay behind.
func TestArenaAlignsLargeBlocksOfOthers(t *testing.T) {
	var a Arena
	var blocks []*Block
	for _, c := range []struct {
		p    Purpose
		n    int
		into int
	}{{Weights, 4096, 0}, {KV, 3 << 20, 0}, {Weights, 2 << 20, 1 << 20}, {Weights, 4096, 4096}, {Activations, 2 << 20, 0}} {
		b, err := a.Alloc(c.p, c.n)
		if err != nil {
			t.Fatal(err)
		}
		if got := IntoHugePage(b.Bytes()); got != c.into {
			t.Errorf("%d bytes for %v begin %d into a huge page, want %d", c.n, c.p, got, c.into)
		}
		blocks = append(blocks, b)
	}
	SmallPages(blocks[1].Bytes()[1<<20:])
	for _, b := range blocks[1:] {
		_ = b.Release()
	}
	if maps := flagsOf(t, address(a.spaces[0].memory)); !strings.Contains(maps, " hg") || strings.Contains(maps, " nh") {
		t.Errorf("the region has the flags %s", maps)
	}
	_ = blocks[0].Release()
}

// flagsOf returns the flags of the mapping that begins at an address.
func flagsOf(t *testing.T, address uintptr) string {
	t.Helper()
	all, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(all), fmt.Sprintf("\n%x-", address))
	if !ok {
		t.Fatalf("no mapping begins at %#x", address)
	}
	_, rest, _ = strings.Cut(rest, "VmFlags:")
	flags, _, _ := strings.Cut(rest, "\n")
	return flags
}

// TestTouchedPagesAreInMemory: whole pages within the range come in, and their contents stay.
func TestTouchedPagesAreInMemory(t *testing.T) {
	var a Arena
	block, err := a.Alloc(KV, 64<<10)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = block.Release() }()
	b := block.Bytes()
	SmallPages(b)
	b[5<<10] = 7
	Touch(b[100 : 16<<10])
	if n := inMemory(t, b); n != 12<<10 || b[5<<10] != 7 {
		t.Errorf("%d bytes are in memory, want 12 KiB; byte %d, want 7", n, b[5<<10])
	}
}
