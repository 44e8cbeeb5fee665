//go:build cuda

package cuda

import (
	"sync/atomic"
	"time"

	"github.com/heftai/heft/internal/backend"
)

var _ backend.Metered = (*Backend)(nil)

// counters are the values that [Backend.Use] reports. Any goroutine may read them.
type counters struct{ bytes, own, toDevice, toHost, copying atomic.Int64 }

// Use implements [backend.Metered].
func (b *Backend) Use() backend.Use {
	c := &b.counters
	return backend.Use{Bytes: c.bytes.Load(), Own: c.own.Load(), ToDevice: c.toDevice.Load(), ToHost: c.toHost.Load(),
		CopySeconds: time.Duration(c.copying.Load()).Seconds()}
}

func (b *Backend) toDevice(dst uintptr, src []byte) error {
	b.counters.toDevice.Add(int64(len(src)))
	return b.queue.ToDevice(dst, src)
}

func (b *Backend) toHost(dst []byte, src uintptr) error {
	b.counters.toHost.Add(int64(len(dst)))
	return b.flushed().ToHost(dst, src)
}
