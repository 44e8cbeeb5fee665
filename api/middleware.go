package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-chi/chi/v5/middleware"

	"github.com/heftai/heft/api/wire"
)

// requestID is the header that correlates a client's log with the server's.
const requestID = "X-Request-Id"

// identify gives each request an id. It keeps the client's own id if sane accepts it.
func identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(requestID)
		if !sane(id) {
			id = rand.Text()
			r.Header.Set(requestID, id)
		}
		w.Header().Set(requestID, id)
		next.ServeHTTP(w, r)
	})
}

// sane accepts short, printable ids. They can neither flood nor forge a log.
func sane(id string) bool {
	return id != "" && len(id) <= 128 && !strings.ContainsFunc(id, func(c rune) bool { return c <= ' ' || c > '~' })
}

// logAccess logs one line for each request at level info; nil means slog.Default(). It never logs
// the query, a header or the body, which may contain keys and prompts.
func logAccess(to *slog.Logger) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			log := cmp.Or(to, slog.Default())
			if !log.Enabled(r.Context(), slog.LevelInfo) {
				next.ServeHTTP(w, r)
				return
			}
			logged(log, next, w, r)
		})
	}
}

// logged answers a request and logs its line.
func logged(log *slog.Logger, next http.Handler, w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	seen := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
	ctx, tokens := wire.WithRecord(r.Context())
	defer func() {
		line := []slog.Attr{slog.String("method", r.Method), slog.String("path", shortened(r.URL.Path)), slog.Int("status", statusOf(seen, r)),
			slog.Float64("duration_seconds", seconds(time.Since(begin))), slog.Int("bytes", seen.BytesWritten())}
		if tokens.Counted {
			line = append(line, slog.Int("prompt_tokens", tokens.PromptTokens), slog.Int("completion_tokens", tokens.Completion))
		}
		if tokens.Client != "" {
			line = append(line, slog.String("key", tokens.Client))
		}
		line = append(line, slog.String("id", r.Header.Get(requestID)), slog.String("from", r.RemoteAddr))
		log.LogAttrs(context.WithoutCancel(ctx), slog.LevelInfo, "request", line...)
	}()
	next.ServeHTTP(seen, r.WithContext(ctx))
}

// longestPath is longer than any valid path of the server, including names of models.
const longestPath = 1 << 10

// shortened cuts a path for the log. Clients may send paths of 64 KiB.
func shortened(path string) string {
	if len(path) <= longestPath {
		return path
	}
	return path[:longestPath] + "…"
}

// seconds returns d in seconds, rounded to microseconds.
func seconds(d time.Duration) float64 { return d.Round(time.Microsecond).Seconds() }

// statusOf returns the status that the client received. If there was no answer, the client
// disconnected or the connection was cut.
func statusOf(w middleware.WrapResponseWriter, r *http.Request) int {
	switch {
	case w.Status() != 0:
		return w.Status()
	case r.Context().Err() != nil:
		return wire.StatusClientClosed
	}
	return http.StatusOK
}

// recoverPanic answers a panic with an error object, or closes the connection if an answer has
// already started.
func recoverPanic(fail failure) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
			defer func() {
				p := recover()
				if p == nil {
					return
				}
				if p != http.ErrAbortHandler {
					slog.Error("panic", "what", p, "path", r.URL.Path, "stack", string(debug.Stack()))
				}
				if seen.Status() != 0 || p == http.ErrAbortHandler {
					panic(http.ErrAbortHandler)
				}
				fail(w, r, &wire.Error{Message: "The server had an error while processing your request."})
			}()
			next.ServeHTTP(seen, r)
		})
	}
}

// secure forbids browsers to guess content types.
func secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}
