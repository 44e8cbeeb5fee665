package roof

import (
	"testing"
	"unsafe"
)

func aligned(n int) []byte {
	b := make([]byte, n+line)
	return b[-uintptr(unsafe.Pointer(unsafe.SliceData(b)))%line:][:n]
}

func TestStreamFills(t *testing.T) {
	b := aligned(8 << 10)
	if !Stream(b[line:4096], 0x3c) {
		return // a processor without
	}
	for i, v := range b {
		want := byte(0)
		if i >= line && i < 4096 {
			want = 0x3c
		}
		if v != want {
			t.Fatalf("byte %d is %#x, want %#x", i, v, want)
		}
	}
	Stream(b[:0], 1)
	defer func() {
		if recover() == nil {
			t.Error("memory off the lines was filled")
		}
	}()
	Stream(b[1:65], 1)
}

// BenchmarkStream fills 512 KiB past the caches and reads them.
func BenchmarkStream(b *testing.B) {
	data := aligned(512 << 10)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		Stream(data, 1)
		ReadMemory(data)
	}
}
