package logbuffer

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stalled is a writer whose reader has stopped until it is closed.
type stalled struct {
	reads chan struct{}
	bytes.Buffer
}

func (s *stalled) Write(p []byte) (int, error) {
	<-s.reads
	return s.Buffer.Write(p)
}

// TestAReaderThatStopsDoesNotBlock: lines up to the limit wait, others are dropped, and their number
// is told once the reader reads again.
func TestAReaderThatStopsDoesNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &stalled{reads: make(chan struct{})}
		var b *Buffer
		reports := 0
		b = New(out, 100, func(n int) {
			reports++
			fmt.Fprintf(b, "%d dropped\n", n)
		})
		for i := range 30 {
			if n, err := fmt.Fprintf(b, "line %04d\n", i); n != 10 || err != nil { // the same as of a writer that works
				t.Fatalf("got %d, %v", n, err)
			}
		}
		if b.Flush(time.Second) {
			t.Error("Flush reports success while nothing is read")
		}
		close(out.reads)
		synctest.Wait()
		if want := "line 0009\n20 dropped\n"; reports != 1 || !strings.HasSuffix(out.String(), want) || strings.Count(out.String(), "\n") != 11 {
			t.Errorf("got %d reports and %q, want one and the end %q", reports, out.String(), want)
		}
		fmt.Fprintln(b, "later")
		if !b.Flush(time.Second) || !strings.HasSuffix(out.String(), "dropped\nlater\n") {
			t.Errorf("got %q", out.String())
		}
	})
}

// TestALargeLineIsDropped: a line larger than the buffer does not block or stay.
func TestALargeLineIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		var b *Buffer
		b = New(&out, 40, func(n int) { fmt.Fprintf(b, "%d dropped\n", n) })
		fmt.Fprintln(b, strings.Repeat("x", 100))
		fmt.Fprintln(b, "next")
		synctest.Wait()
		if got := out.String(); got != "next\n1 dropped\n" {
			t.Errorf("got %q", got)
		}
	})
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// TestErrorsEnd: a writer that fails, such as a pipe without a reader, neither blocks nor is written
// to for ever.
func TestErrorsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(broken{}, 100, func(int) { t.Error("lines are counted as dropped") })
		fmt.Fprintln(b, "one")
		fmt.Fprintln(b, "two")
		synctest.Wait()
		if !b.Flush(0) {
			t.Error("lines wait")
		}
	})
}
