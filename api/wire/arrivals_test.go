package wire

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// slowClient is a request whose body is written to send, and its answer. A deadline in the past ends
// its reads, as that of a connection does.
type slowClient struct {
	*httptest.ResponseRecorder
	body *io.PipeReader
	send *io.PipeWriter
	done chan struct{}
}

func (s *slowClient) SetReadDeadline(at time.Time) error {
	if !at.IsZero() {
		return s.body.CloseWithError(os.ErrDeadlineExceeded)
	}
	return nil
}

// post sends the header of a request to h.
func post(t *testing.T, h http.Handler, client string, length int64) *slowClient {
	s := &slowClient{ResponseRecorder: httptest.NewRecorder(), done: make(chan struct{})}
	s.body, s.send = io.Pipe()
	r := httptest.NewRequestWithContext(WithClient(t.Context(), &Client{ID: client}), "POST", "/", s.body)
	r.ContentLength = length
	go func() { defer close(s.done); h.ServeHTTP(s, r) }()
	synctest.Wait()
	return s
}

// readsBodies returns a handler that reads bodies, within the memory of m.
func readsBodies(m *Memory) http.Handler {
	return m.Limit(plainFor)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b, err := ReadBody(r.Context(), r.Body); err != nil {
			plain(w, err)
		} else {
			fmt.Fprintf(w, "%d bytes", len(b))
		}
	}))
}

// TestStalledBodiesKeptOthersWaiting: clients that sent half a body, or a byte now and then, held the
// memory for requests for a minute. Others got a 503.
func TestStalledBodiesKeptOthersWaiting(t *testing.T) {
	for name, length := range map[string]int64{"announced": 100 << 10, "chunked": -1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := NewMemory(9<<20/4, nil) // of which bodies have a MiB
				h := readsBodies(m)
				size := int(max(length, firstRead-1))
				var stalled []*slowClient
				for m.held.used+requestBytes+max(length, firstRead) <= m.held.most {
					s := post(t, h, "flood", length)
					_, _ = io.WriteString(s.send, strings.Repeat("x", 1000))
					stalled = append(stalled, s)
				}
				dripping := stalled[0]
				go func() {
					for err := error(nil); err == nil; _, err = io.WriteString(dripping.send, "x") {
						time.Sleep(time.Millisecond)
					}
				}()
				time.Sleep(10 * time.Second)
				synctest.Wait()
				for i, s := range stalled {
					select {
					case <-s.done:
						t.Errorf("body %d of %d was stopped while no request waited: %d", i, len(stalled), s.Code)
					default:
					}
				}
				begin := time.Now()
				honest := post(t, h, "honest", length)
				go func() { _, _ = io.WriteString(honest.send, strings.Repeat("y", size)); _ = honest.send.Close() }()
				<-honest.done
				if took := time.Since(begin); took > slowAfter || honest.Code != http.StatusOK {
					t.Errorf("got %d after %v: %s", honest.Code, took, honest.Body)
				}
				<-dripping.done // it began first
				if dripping.Code != http.StatusRequestTimeout || !strings.Contains(dripping.Body.String(), "others waited") {
					t.Errorf("a slow body: got %d %s", dripping.Code, dripping.Body)
				}
				for _, s := range stalled {
					_ = s.send.Close()
					<-s.done
				}
				time.Sleep(2 * slowCheck)
				m.mu.Lock()
				defer m.mu.Unlock()
				if m.arrivals.Len() != 0 || m.stopping || m.blocked != 0 {
					t.Errorf("at the end: %d bodies arrive, stopping %v, %d blocked", m.arrivals.Len(), m.stopping, m.blocked)
				}
			})
		})
	}
}

// TestFastBodiesAreNotStopped: a body that makes progress, or has just begun, keeps its memory while
// others wait.
func TestFastBodiesAreNotStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(9<<20/4, nil)
		h := readsBodies(m)
		const size = 600 << 10
		fast := post(t, h, "a", size)
		waits := post(t, h, "b", size)
		go func() {
			for range size >> 10 {
				_, _ = io.WriteString(fast.send, strings.Repeat("x", 1<<10))
				time.Sleep(10 * time.Millisecond)
			}
			_ = fast.send.Close()
			_, _ = io.WriteString(waits.send, strings.Repeat("x", size))
			_ = waits.send.Close()
		}()
		<-fast.done
		<-waits.done
		if fast.Code != http.StatusOK || waits.Code != http.StatusOK {
			t.Errorf("got %d %s, and for the waiting one %d %s", fast.Code, fast.Body, waits.Code, waits.Body)
		}
	})
}

// TestAClientWithManyBodiesLosesOnes: the slow body of a client with one is kept while another client has
// more of them.
func TestAClientWithManyBodiesLosesOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(9<<20/4, nil)
		h := readsBodies(m)
		const size = 250 << 10
		slow := post(t, h, "slow", size)
		first, second := post(t, h, "flood", size), post(t, h, "flood", size)
		time.Sleep(time.Second)
		next := post(t, h, "next", size)
		<-first.done
		for _, s := range []*slowClient{slow, second, next} {
			go func() { _, _ = io.WriteString(s.send, strings.Repeat("x", size)); _ = s.send.Close() }()
			if <-s.done; s.Code != http.StatusOK {
				t.Errorf("got %d %s", s.Code, s.Body)
			}
		}
		if first.Code != http.StatusRequestTimeout {
			t.Errorf("got %d %s, want 408", first.Code, first.Body)
		}
	})
}

// TestAStalledUploadIsStopped: bodies that are read in pieces hold memory, too.
func TestAStalledUploadIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(9<<10*32, nil) // of which bodies have 128 KiB
		h := m.Streams(70<<10, plain, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				plain(w, err)
			}
		}))
		stalled := post(t, h, "a", 1<<20)
		time.Sleep(time.Second)
		next := post(t, h, "b", 1<<20)
		if <-stalled.done; stalled.Code != http.StatusRequestTimeout {
			t.Errorf("got %d %s, want 408", stalled.Code, stalled.Body)
		}
		_ = next.send.Close()
		if <-next.done; next.Code != http.StatusOK {
			t.Errorf("the next one got %d %s", next.Code, next.Body)
		}
	})
}

// TestAFloodOfWaitingRequestsLeavesPlaces: requests of one client took all places in the queue for memory, so
// that others got a 503 at once.
func TestAFloodOfWaitingRequestsLeavesPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(9<<10, nil)
		flood := WithClient(t.Context(), &Client{ID: "flood"})
		holder, _ := m.claim(t.Context(), 4<<10)
		rejected := make(chan int, fewWaits)
		for i := range fewWaits {
			go func() {
				if _, ok := m.claim(flood, 4<<10); !ok {
					rejected <- i
				}
			}()
			synctest.Wait()
		}
		honest, cancel := context.WithCancel(WithClient(t.Context(), &Client{ID: "honest"}))
		defer cancel()
		admitted := make(chan bool, 1)
		go func() { _, ok := m.claim(honest, 1<<10); admitted <- ok }()
		synctest.Wait()
		if last := <-rejected; last != fewWaits-1 {
			t.Errorf("request %d of the flood was rejected, want the last one", last)
		}
		holder.end()
		if ok := <-admitted; !ok {
			t.Error("the request of another client was rejected")
		}
		time.Sleep(2 * roomWait)
	})
}
