//go:build unix

package repl

import (
	"os"
	"os/signal"
	"syscall"
)

// onResize calls resized when the size of the terminal changes, until stop is called.
func onResize(resized func()) (stop func()) {
	changes, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(changes, syscall.SIGWINCH)
	go func() {
		for {
			select {
			case <-changes:
				resized()
			case <-done:
				return
			}
		}
	}()
	return func() { signal.Stop(changes); close(done) }
}
