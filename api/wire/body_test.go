package wire

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// plain writes an error as its status and message.
func plain(w http.ResponseWriter, err error) {
	var own *Error
	if !errors.As(err, &own) {
		own = &Error{Message: err.Error()}
	}
	http.Error(w, own.Message, own.Kind.Status())
}

func plainFor(*http.Request) ErrorWriter { return plain }

// settled collects garbage and returns the bytes in use.
func (m *Memory) settled() int64 {
	m.collect()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.garbage
}

// memoryOf limits requests to n bytes and does not wait.
func memoryOf(n int64) *Memory {
	m := NewMemory(n, nil)
	m.wait = 0
	return m
}

// TestBodiesOfAllSizesAreBounded: sixty bodies of 0.9 MiB took gigabytes, as only the part beyond
// 64 KiB of each was counted, and no decoded value.
func TestBodiesOfAllSizesAreBounded(t *testing.T) {
	const size = 100 << 10
	all := memoryOf(9 << 20 / 4) // of which bodies have a MiB
	var depth int
	var got []int
	var h http.Handler
	send := func(length int64) int {
		r := httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", size)))
		r.ContentLength = length
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	h = all.Limit(plainFor)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := ReadBody(r.Context(), r.Body); err != nil {
			plain(w, err)
			return
		}
		if depth++; depth < 20 {
			got = append(got, send(int64(size-2*size*(depth%2)))) // every second one unannounced
		}
	}))
	if code := send(size); code != http.StatusOK {
		t.Errorf("the first: %d", code)
	}
	refused := 0
	for _, code := range got {
		if code == http.StatusServiceUnavailable {
			refused++
		}
	}
	if n := len(got); n < 5 || n > 9 || refused != 1 {
		t.Errorf("%v, want one refusal at the eighth or so", got)
	}
	for all.settled() > 0 {
		runtime.Gosched()
	}
	if all.held.used != 0 || all.work.used != 0 || all.garbage != 0 {
		t.Errorf("%+v at the end", all)
	}
}

// TestUnannouncedBodiesAreCountedAsTheyGrow: a body in chunks may have any size.
func TestUnannouncedBodiesAreCountedAsTheyGrow(t *testing.T) {
	all := NewMemory(DefaultMemory, nil)
	read := func(size int) (n int, code int) {
		h := all.Limit(plainFor)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, err := ReadBody(r.Context(), r.Body)
			if n = len(b); err != nil {
				plain(w, err)
			}
		}))
		r := httptest.NewRequest("POST", "/", io.LimitReader(endless{}, int64(size)))
		r.ContentLength = -1
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return n, w.Code
	}
	for _, size := range []int{1, firstRead, firstRead + 1, 1 << 20, maxBody} {
		if n, code := read(size); n != size || code != http.StatusOK {
			t.Errorf("%d bytes: %d, status %d", size, n, code)
		}
	}
	if _, code := read(maxBody + 1); code != http.StatusRequestEntityTooLarge {
		t.Errorf("more than allowed: status %d", code)
	}
}

// TestALowerLimitAdmitsFewerRequests: when the memory limit falls, requests that run go on, and new ones
// wait until there is room or the limit rises.
func TestALowerLimitAdmitsFewerRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(9<<10, nil)
		m.Admit(2 << 10)
		first, ok := m.claim(t.Context(), 2<<10) // alone
		if !ok || first.Keep(1<<9) != nil {
			t.Fatal("a request alone is not admitted")
		}
		begin := time.Now()
		if _, ok := m.claim(t.Context(), 1<<9); ok || time.Since(begin) != roomWait {
			t.Errorf("admitted: %v, after %v", ok, time.Since(begin))
		}
		admitted := make(chan bool)
		go func() { _, ok := m.claim(t.Context(), 1<<9); admitted <- ok }()
		synctest.Wait()
		m.Admit(9 << 10)
		if !<-admitted {
			t.Error("no request is admitted when the limit has risen")
		}
	})
}

// endless is a text without end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// TestGarbageCountsUntilItIsCollected: memory that a request has released is not free yet.
func TestGarbageCountsUntilItIsCollected(t *testing.T) {
	counted := int64(0)
	m := NewMemory(9<<10, func(n int64) { counted += n })
	m.wait = 0
	c, ok := m.claim(t.Context(), 3<<10)
	if !ok || c.Work(4<<10) != nil {
		t.Fatal("no memory at first")
	}
	c.drop(1 << 10)
	c.WorkDone()
	if m.held.used != 2<<10 || m.work.used != 0 || counted-m.garbage != 2<<10 {
		t.Errorf("held %d, work %d, garbage %d, counted %d", m.held.used, m.work.used, m.garbage, counted)
	}
	if !m.take(t.Context(), &m.work, 5<<10, 0, nil) { // collects first
		t.Error("garbage is in the way")
	}
	var own *Error
	if err := c.Keep(9 << 10); !errors.As(err, &own) || own.Kind != TooLarge {
		t.Errorf("more than there is: %v", err)
	}
	if err := c.Work(1 << 10); !errors.As(err, &own) || own.Kind != Overloaded || own.RetryAfter == 0 {
		t.Errorf("more than is free: %v", err)
	}
	c.end()
	if err := c.Keep(1); err == nil {
		t.Error("an ended claim reserves memory")
	}
	var none *Claim
	if err := errors.Join(none.Keep(1), none.Work(1)); err != nil {
		t.Error(err)
	}
	none.WorkDone()
}

// TestADecoderWaitsForMemory: large requests take turns.
func TestADecoderWaitsForMemory(t *testing.T) {
	m := NewMemory(9<<20, nil)
	a, _ := m.claim(t.Context(), 1)
	b, _ := m.claim(t.Context(), 1)
	if err := a.Work(4 << 20); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- b.Work(4 << 20) }()
	a.end()
	if err := <-done; err != nil {
		t.Error(err)
	}
	b.end()
}

// unread is a body that may only be read, to drop it, once the answer was sent.
type unread struct {
	t      *testing.T
	answer *httptest.ResponseRecorder
}

func (u unread) Read([]byte) (int, error) {
	if !u.answer.Flushed {
		u.t.Error("the body was read before the answer was sent")
	}
	return 0, io.EOF
}

// TestAnOversizeAnnouncedBodyIsRejectedUnread: 32 MiB of a longer body were read before the 413.
func TestAnOversizeAnnouncedBodyIsRejectedUnread(t *testing.T) {
	h := NewMemory(DefaultMemory, nil).Limit(plainFor)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { t.Error("the handler ran") }))
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", "/", unread{t, w})
	r.ContentLength = maxBody + 1
	h.ServeHTTP(w, r)
	if w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("got status %d, want 413", w.Code)
	}
}

// failing is a body that ends with err.
type failing struct {
	io.Reader
	err error
}

func (f failing) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = f.err
	}
	return n, err
}

// TestAMalformedBodyIsTheClientsFault: malformed chunks were a 499.
func TestAMalformedBodyIsTheClientsFault(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want Kind
	}{
		"malformed": {errors.New("invalid byte in chunk length"), Invalid}, "incomplete": {io.ErrUnexpectedEOF, Invalid},
		"full": {errFull(), Overloaded}, "large": {&http.MaxBytesError{}, TooLarge},
	} {
		_, err := ReadBody(t.Context(), failing{strings.NewReader("{"), c.err})
		var own *Error
		if !errors.As(err, &own) || own.Kind != c.want {
			t.Errorf("%s: got %v, want kind %d", name, err, c.want)
		}
	}
}

// TestAWaitingRequestNoticesThatItsClientDisconnected: it waited for memory until its time was over.
func TestAWaitingRequestNoticesThatItsClientDisconnected(t *testing.T) {
	m := NewMemory(9<<20, nil)
	m.wait = 24 * time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	a, _ := m.claim(t.Context(), 4<<20)
	b := &Claim{m: m, ctx: ctx}
	if err := a.Work(5 << 20); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	go func() { failed <- b.Work(1 << 20) }()
	go func() { failed <- b.m.claimOrFail(ctx, 1<<20) }()
	cancel()
	for range 2 {
		var own *Error
		if err := <-failed; !errors.As(err, &own) || own.Kind != Interrupted {
			t.Errorf("got %v, want an interrupted request", err)
		}
	}
	a.end()
}

// TestRequestsThatWaitForMemoryAreBounded: each waited ten seconds with a connection that no plan counted.
func TestRequestsThatWaitForMemoryAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(9<<10, nil)
		first, _ := m.claim(t.Context(), 4<<10)
		ends := make(chan time.Time, fewWaits)
		begin := time.Now()
		for range fewWaits {
			go func() { m.claim(t.Context(), 4<<10); ends <- time.Now() }()
		}
		synctest.Wait()
		if _, ok := m.claim(t.Context(), 1<<10); ok || time.Since(begin) != 0 {
			t.Errorf("a request beyond %d that wait: admitted %v after %v, want it rejected at once", fewWaits, ok, time.Since(begin))
		}
		for range fewWaits {
			if at := <-ends; at.Sub(begin) != roomWait {
				t.Errorf("a request waited %v, want %v", at.Sub(begin), roomWait)
			}
		}
		first.end()
		if _, ok := m.claim(t.Context(), 1<<10); !ok {
			t.Error("no request is admitted when none waits")
		}
	})
}

// TestAStreamOfHTTP2DoesNotWaitForItsRejectedBody: thousands of streams of a connection could wait for bodies.
func TestAStreamOfHTTP2DoesNotWaitForItsRejectedBody(t *testing.T) {
	r := httptest.NewRequest("POST", "/", failing{strings.NewReader("x"), errors.New("read")})
	r.ProtoMajor = 2
	RejectUnread(httptest.NewRecorder(), r, plain, errFull())
	if rest, _ := io.ReadAll(r.Body); len(rest) != 1 {
		t.Error("the body was read")
	}
}

// claimOrFail is claim with the error that Limit answers with.
func (m *Memory) claimOrFail(ctx context.Context, n int64) error {
	r := httptest.NewRequestWithContext(ctx, "POST", "/", strings.NewReader(strings.Repeat("x", int(n))))
	var got error
	w := func(_ http.ResponseWriter, err error) { got = err }
	m.Limit(func(*http.Request) ErrorWriter { return w })(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
	return got
}

// TestRequestsWithoutABodyReserveToo: objects that a GET reads from a store were not counted.
func TestRequestsWithoutABodyReserveToo(t *testing.T) {
	all := memoryOf(9 << 10) // of which requests may hold 4 KiB
	var second error
	h := all.Limit(plainFor)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := ClaimOf(r.Context()).Keep(3 << 10); err != nil {
			plain(w, err)
			return
		}
		second = ClaimOf(r.Context()).Keep(2 << 10)
	}))
	for range 3 { // the reservation of one request is free again for the next
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if w.Code != http.StatusOK || second == nil {
			t.Errorf("status %d, more than there is: %v", w.Code, second)
		}
		all.settled()
	}
}
