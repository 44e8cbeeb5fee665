package api

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/heftai/heft/api/wire"
)

// Access says which web pages and which host names may use a server. Programs other than browsers
// send neither Origin nor Sec-Fetch-Site, and are not affected.
type Access struct {
	// Origins are the origins of web pages, such as https://app.example, that may use the server
	// from a browser. The server's own page always may. "*" allows all pages.
	Origins []string
	// Hosts are the host names that a server on a loopback address answers to. IP addresses,
	// localhost and names below it are always allowed. "*" allows all names. Any other name may
	// belong to a page whose owner points it at this machine (DNS rebinding).
	Hosts []string
}

// anyName stands for all origins or hosts.
const anyName = "*"

// Check returns an error if an entry is not an origin or a host name.
func (a *Access) Check() error {
	for _, o := range a.Origins {
		u, err := url.Parse(o)
		if o != anyName && (err != nil || u.Scheme == "" || u.Host == "" || strings.Contains(u.Host, "*") || u.Scheme+"://"+u.Host != strings.TrimSuffix(o, "/")) {
			return fmt.Errorf("api: got origin %q, want SCHEME://HOST[:PORT] or *", o)
		}
	}
	for _, h := range a.Hosts {
		if h == "" || h != anyName && strings.ContainsAny(h, "/:*@ \t") {
			return fmt.Errorf("api: got host %q, want a name without scheme and port, or *", h)
		}
	}
	return nil
}

// gate checks requests against an Access.
type gate struct {
	origins  map[string]bool
	anyPage  bool
	hosts    map[string]bool
	anyHost  bool
	browsers *http.CrossOriginProtection
	fail     failure
}

func newGate(a Access, fail failure) *gate {
	g := &gate{origins: map[string]bool{}, hosts: map[string]bool{}, browsers: http.NewCrossOriginProtection(), fail: fail}
	g.anyPage, g.anyHost = slices.Contains(a.Origins, anyName), slices.Contains(a.Hosts, anyName)
	for _, o := range a.Origins {
		g.origins[strings.ToLower(strings.TrimSuffix(o, "/"))] = true
	}
	for _, h := range a.Hosts {
		g.hosts[canonicalHost(h)] = true
	}
	return g
}

// protect rejects requests for hosts and from pages that are not allowed, and answers the
// preflight requests of browsers.
func (g *gate) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.anyHost && onLoopback(r.Context()) && !g.knows(r.Host) {
			g.fail(w, r, &wire.Error{Kind: wire.Forbidden, Message: fmt.Sprintf(
				"The host %q is not allowed: call the server by its IP address or localhost, or start it with --allowed-host.", r.Host)})
			return
		}
		if len(g.origins) > 0 {
			w.Header().Add("Vary", "Origin")
		}
		origin := r.Header.Get("Origin")
		if origin != "" && (g.anyPage || g.origins[strings.ToLower(origin)]) {
			g.allow(w, r, origin, next)
			return
		}
		if g.foreign(r) {
			page := "A web page of another site"
			if origin != "" {
				page = fmt.Sprintf("The web page at %q", origin)
			}
			g.fail(w, r, &wire.Error{Kind: wire.Forbidden, Message: page + " may not use this server: start it with --cors-origin to allow it."})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// foreign reports whether a page of another origin sent r with a browser. A link that a user
// follows does not count.
func (g *gate) foreign(r *http.Request) bool {
	if g.anyPage {
		return false
	}
	reading := r.Method == http.MethodGet || r.Method == http.MethodHead
	if reading && r.Header.Get("Sec-Fetch-Mode") == "navigate" {
		return false
	}
	acting := *r
	acting.Method = http.MethodPost // Check allows all read-only methods
	return g.browsers.Check(&acting) != nil
}

// allow adds the CORS headers for an allowed page. It also answers the page's preflight requests,
// which ask for methods and headers.
func (g *gate) allow(w http.ResponseWriter, r *http.Request, origin string, next http.Handler) {
	h := w.Header()
	if g.anyPage {
		origin = anyName
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", requestID+", Retry-After")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		next.ServeHTTP(w, r)
		return
	}
	h.Add("Vary", "Access-Control-Request-Headers")
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE")
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h.Set("Access-Control-Allow-Headers", asked) // by name, as * does not include Authorization
	}
	if r.Header.Get("Access-Control-Request-Private-Network") == "true" {
		h.Set("Access-Control-Allow-Private-Network", "true")
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}

// knows reports whether clients may use host as the name of a server on a loopback address.
// Requests of HTTP/1.0 have no host; browsers always send one.
func (g *gate) knows(host string) bool {
	name := canonicalHost(host)
	if name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost") || g.hosts[name] {
		return true
	}
	_, err := netip.ParseAddr(name)
	return err == nil
}

// canonicalHost returns the name in a Host header in lower case, without the port, brackets and the
// final dot.
func canonicalHost(host string) string {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
		if inner, ok := strings.CutPrefix(name, "["); ok {
			name = strings.TrimSuffix(inner, "]")
		}
	}
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

// loopbackKey is the context key of a bool: whether the listener of a connection is on a loopback
// address.
type loopbackKey struct{}

// noteListener returns the base context of connections that l accepts.
func noteListener(l net.Listener) context.Context {
	return context.WithValue(context.Background(), loopbackKey{}, isLoopback(l.Addr()))
}

// onLoopback reports whether a request came through a listener on a loopback address. If the
// handler is used without Server, it checks the connection's own address.
func onLoopback(ctx context.Context) bool {
	if known, ok := ctx.Value(loopbackKey{}).(bool); ok {
		return known
	}
	addr, _ := ctx.Value(http.LocalAddrContextKey).(net.Addr)
	return isLoopback(addr)
}

func isLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
