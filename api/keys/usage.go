package keys

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/heftai/heft/api/wire"
)

// usage is the usage of a key. It survives reloads of the file.
type usage struct {
	now func() time.Time

	mu                 sync.Mutex
	parallel, running  int
	requests, tokens   bucket
	admitted, rejected int64
	prompt, completion int64
}

// A bucket is a token bucket that fills in a minute. Its level may be negative: usage beyond the
// limit is a debt.
type bucket struct {
	size  float64 // per minute; 0: no limit
	level float64
	at    time.Time
}

// limit sets the size. The level of a bucket stays, but is at most the new size.
func (b *bucket) limit(size int, now time.Time) {
	b.fill(now)
	switch {
	case b.size == 0:
		b.level = float64(size)
	default:
		b.level = min(b.level, float64(size))
	}
	b.size = float64(size)
}

func (b *bucket) fill(now time.Time) {
	if !b.at.IsZero() {
		b.level = min(b.size, b.level+b.size*max(0, now.Sub(b.at).Minutes())) // a clock that is set back takes nothing
	}
	b.at = now
}

// wait returns the time until the bucket holds n. It is 0 if there is no limit.
func (b *bucket) wait(n float64, now time.Time) time.Duration {
	if b.size == 0 {
		return 0
	}
	if b.fill(now); b.level >= n {
		return 0
	}
	return time.Duration((n - b.level) / b.size * float64(time.Minute))
}

func (b *bucket) take(n float64) { b.level -= n }

func (u *usage) limit(e *entry) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.parallel = e.Parallel
	u.requests.limit(e.Requests, u.now())
	u.tokens.limit(e.Tokens, u.now())
}

// busy is the Retry-After of a key with the maximum number of running requests. It is not known
// when one of them ends.
const busy = time.Second

// Enter admits a request of the key. The caller must call leave when the request has been answered.
// Errors are of kind wire.RateLimited and say when to retry. Tokens are counted as they are
// computed: a request is admitted while any are left, and its excess reduces the tokens of the next
// minute.
func (k *Key) Enter() (leave func(), err error) {
	u, e := k.usage, &k.limits
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.now()
	reject := func(after time.Duration, format string, args ...any) error {
		u.rejected++
		after = time.Duration(math.Ceil(after.Seconds())) * time.Second
		return &wire.Error{Kind: wire.RateLimited, RetryAfter: after, Message: "The API key " + e.Name + " may " + fmt.Sprintf(format, args...) + fmt.Sprintf("; retry after %d s.", int(after.Seconds()))}
	}
	if u.parallel > 0 && u.running >= u.parallel {
		return nil, reject(busy, "run %d requests at once", u.parallel)
	}
	if after := u.requests.wait(1, now); after > 0 {
		return nil, reject(after, "send %d requests per minute", e.Requests)
	}
	if after := u.tokens.wait(1, now); after > 0 {
		return nil, reject(after, "use %d tokens per minute", e.Tokens)
	}
	u.requests.take(1)
	u.running++
	u.admitted++
	return sync.OnceFunc(func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.running--
	}), nil
}

// HasTokens reports whether the key may use tokens now.
func (k *Key) HasTokens() bool {
	k.usage.mu.Lock()
	defer k.usage.mu.Unlock()
	return k.usage.tokens.wait(1, k.usage.now()) <= 0
}

// spend counts tokens.
func (u *usage) spend(prompt, completion int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.tokens.fill(u.now())
	u.tokens.take(float64(prompt + completion))
	u.prompt += int64(prompt)
	u.completion += int64(completion)
}

func (u *usage) counts(name string) Usage {
	u.mu.Lock()
	defer u.mu.Unlock()
	return Usage{Name: name, Running: u.running, Requests: u.admitted, Rejected: u.rejected, PromptTokens: u.prompt, Completion: u.completion}
}
