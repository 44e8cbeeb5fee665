package hub

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// An answer is the last response of a chain of redirects, with what the hub said about the file on
// the way.
type answer struct {
	*http.Response
	facts facts
}

// facts are the hub's statements about a file in the headers of a response. Only headers of the
// hub's endpoint count, because the host that serves the bytes does not know them.
type facts struct {
	commit string
	hash   string // the ETag without its marks
	size   int64  // -1: unknown
	linked bool   // hash and size are those of the file, not of the response
}

func (f *facts) take(r *http.Response) {
	if commit := r.Header.Get("X-Repo-Commit"); commit != "" {
		f.commit = commit
	}
	if hash := r.Header.Get("X-Linked-Etag"); hash != "" {
		f.hash, f.linked, f.size = opaque(hash), true, number(r.Header.Get("X-Linked-Size"))
	}
	if f.linked || r.StatusCode != http.StatusOK {
		return
	}
	f.hash, f.size = opaque(r.Header.Get("ETag")), r.ContentLength
}

// opaque returns an entity tag without quotes and without its weak marker.
func opaque(tag string) string {
	return strings.Trim(strings.TrimPrefix(strings.TrimSpace(tag), "W/"), `"`)
}

// number reads a size in a header. It returns -1 if there is none.
func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// maxRedirects is the maximum number of redirects of a request.
const maxRedirects = 10

// ask sends a request, retries after transient failures, and calls use with the answer. Its body
// ends with an error if the connection is idle for too long.
func (c *Client) ask(ctx context.Context, method string, at *url.URL, header http.Header, use func(a *answer, body io.Reader) error) error {
	return c.try(ctx, func() (progress bool, err error) {
		release, err := c.slot(ctx)
		if err != nil {
			return false, err
		}
		defer release()
		watched := c.watch(ctx)
		defer watched.stop()
		a, err := c.send(watched.ctx, method, at, header)
		if err != nil {
			return false, err
		}
		defer a.Body.Close()
		return false, use(a, watched.reader(a.Body))
	})
}

// send makes one request and follows its redirects. It sends the token to the endpoint only. The
// caller closes the body.
func (c *Client) send(ctx context.Context, method string, at *url.URL, header http.Header) (*answer, error) {
	known := facts{size: -1}
	for range maxRedirects {
		request, err := http.NewRequestWithContext(ctx, method, at.String(), nil)
		if err != nil {
			return nil, failf(Corrupt, "the hub redirects to an invalid address")
		}
		if header != nil {
			request.Header = header.Clone()
		}
		request.Header.Set("User-Agent", c.config.UserAgent)
		request.Header.Set("Accept-Encoding", "identity") // sizes and ranges are of the file as it is
		ours := c.ours(at)
		if ours && c.config.Token != "" {
			request.Header.Set("Authorization", "Bearer "+c.config.Token)
		}
		response, err := c.http.Do(request)
		if err != nil {
			if context.Cause(ctx) == errIdle {
				err = errIdle
			}
			return nil, &transient{err: &Error{Kind: Unreachable, Reason: "asking " + at.Host, Err: plain(err)}}
		}
		c.reached.Store(true)
		if ours {
			known.take(response)
		}
		switch response.StatusCode {
		case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
			http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		default:
			return &answer{response, known}, nil
		}
		drain(response)
		next, err := at.Parse(response.Header.Get("Location"))
		if err != nil || next.Host == "" || next.Scheme != "https" && (next.Scheme != "http" || at.Scheme == "https") {
			return nil, failf(Corrupt, "%s redirects to an address that is not allowed", at.Host)
		}
		if method == http.MethodHead && known.linked && !c.ours(next) {
			return &answer{response, known}, nil // the hub's headers are complete, and the host of the bytes may forbid HEAD
		}
		at = next
	}
	return nil, failf(Corrupt, "%s redirects more than %d times", at.Host, maxRedirects)
}

// ours reports whether an address belongs to the endpoint.
func (c *Client) ours(at *url.URL) bool {
	return at.Scheme == c.endpoint.Scheme && at.Host == c.endpoint.Host
}

// drain reads the rest of a short body, so that the connection can be reused.
func drain(r *http.Response) {
	_, _ = io.CopyN(io.Discard, r.Body, 16<<10)
	r.Body.Close()
}

// address returns an address at the endpoint. Each part is one segment of the path, whatever
// characters it has.
func (c *Client) address(query string, parts ...string) *url.URL {
	u := *c.endpoint
	raw := u.EscapedPath()
	for _, part := range parts {
		raw += "/" + url.PathEscape(part)
	}
	u.Path, _ = url.PathUnescape(raw) // it was escaped above
	u.RawPath, u.RawQuery = raw, query
	return &u
}

// place returns the address of a file of a commit.
func (c *Client) place(repo Repo, commit, name string) *url.URL {
	parts := append(strings.Split(repo.String(), "/"), "resolve", commit)
	return c.address("", append(parts, strings.Split(name, "/")...)...)
}

// refusal returns the error for an unexpected response. It is transient if a retry may succeed.
func (c *Client) refusal(a *answer, repo Repo) error {
	code, said := a.Header.Get("X-Error-Code"), a.Header.Get("X-Error-Message")
	drain(a.Response)
	if said != "" {
		said = ": the hub says " + printable(said)
	}
	switch status := a.StatusCode; {
	case status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status >= 500:
		kind := Unreachable
		if status == http.StatusTooManyRequests {
			kind = Throttled
		}
		return &transient{failf(kind, "the hub answers %s%s", a.Status, said), retryAfter(a.Header)}
	case code == "GatedRepo":
		return failf(Gated, "the model is gated: ask for access at %s/%s, then set HF_TOKEN to a token of the account that has it%s",
			c.endpoint, repo, said)
	case status == http.StatusUnauthorized && c.config.Token == "", status == http.StatusUnauthorized && code == "RepoNotFound":
		return failf(Refused, "there is no such model, or it is private: check the name, or set HF_TOKEN to a token that may read it%s", said)
	case status == http.StatusUnauthorized:
		return failf(Refused, "the hub does not accept the token: set HF_TOKEN to a valid one%s", said)
	case status == http.StatusForbidden && c.config.Token == "":
		return failf(Refused, "the hub refuses this model without a token: set HF_TOKEN to one that may read it%s", said)
	case status == http.StatusForbidden:
		return failf(Refused, "the token may not read this model%s", said)
	case code == "RevisionNotFound":
		return failf(NotFound, "the model has no such revision%s", said)
	case code == "EntryNotFound":
		return failf(NotFound, "the revision has no such file%s", said)
	case status == http.StatusNotFound:
		return failf(NotFound, "there is no such model at %s%s", c.endpoint.Host, said)
	case status == http.StatusRequestedRangeNotSatisfiable:
		return failf(Corrupt, "the server has fewer bytes than it announced")
	}
	return failf(Failed, "the hub answers %s%s", a.Status, said)
}
