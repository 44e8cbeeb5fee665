package residency

import (
	"context"
	"time"
)

const (
	// quietFor is the time without an acquired unit after which background reads continue.
	quietFor = time.Second
	// busyWaits bounds their wait, in multiples of the time of their last read. While passes
	// never pause, 49 leaves a fiftieth of the time to background reads.
	busyWaits = 49
)

// whenQuiet returns a function that paces background reads; call it before each read. If no unit
// was acquired since the last call, it returns at once. Otherwise it waits until no unit was
// acquired for the duration quiet, so that passes have the disk to themselves. It waits at most
// waits times as long as the last read took.
func (s *Store) whenQuiet(quiet time.Duration, waits int) func(context.Context) error {
	seen, last := s.acquired.Load(), time.Now()
	var timer *time.Timer // reused: waiting must not allocate while tokens are generated
	return func(ctx context.Context) error {
		begin := time.Now()
		most := begin.Sub(last) * time.Duration(waits)
		defer func() { last = time.Now() }()
		for {
			now, left := s.acquired.Load(), most-time.Since(begin)
			if now == seen || left <= 0 {
				return ctx.Err()
			}
			seen = now
			if timer == nil {
				timer = time.NewTimer(min(quiet, left))
			} else {
				timer.Reset(min(quiet, left))
			}
			select {
			case <-ctx.Done():
				timer.Stop()
				return ctx.Err()
			case <-timer.C:
			}
		}
	}
}
