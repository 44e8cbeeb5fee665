package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/heftai/heft/api/keys"
	"github.com/heftai/heft/api/wire"
)

// open has the paths, in addition to the page's, that neither compute nor reveal data. They need no
// key.
var open = map[string]bool{"/health": true, "/ready": true, "/metrics": true, "/version": true, documentPath: true}

// guard accepts requests that have one of the keys, and applies the limits of named keys. Without
// keys it accepts all requests, as an admin's. It stores the client in the request's context.
type guard struct {
	sums   [][sha256.Size]byte // hashes of all unnamed keys
	admins [][sha256.Size]byte // hashes of the admins' keys, which are also in sums
	named  *keys.Set           // nil: none
	fail   failure
}

func newGuard(plain, admins []string, named *keys.Set, fail failure) *guard {
	return &guard{sumsOf(slices.Concat(plain, admins)), sumsOf(admins), named, fail}
}

// sumsOf returns the hashes of keys.
func sumsOf(keys []string) [][sha256.Size]byte {
	sums := make([][sha256.Size]byte, len(keys))
	for i, k := range keys {
		sums[i] = sha256.Sum256([]byte(k))
	}
	return sums
}

func (g *guard) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keyless := len(g.sums) == 0 && g.named == nil
		if keyless || open[r.URL.Path] || pagePaths[r.URL.Path] != "" {
			next.ServeHTTP(w, r.WithContext(wire.WithClient(r.Context(), &wire.Client{ID: addressOf(r), Admin: keyless})))
			return
		}
		given := keysOf(r)
		owner, ok := bringsKey(given, g.sums)
		_, admin := bringsKey(given, g.admins)
		client := &wire.Client{ID: owner, Admin: admin}
		if g.named != nil {
			if k := g.named.Find(given); k != nil {
				client = k.Client()
				if admin && !client.Admin { // the request also has a key of an admin
					both := *client
					both.Admin = true
					client = &both
				}
				owner, ok = client.ID, true
				ctx := wire.WithClient(r.Context(), client) // the log names the key of a rejected request, too
				if r.Method == http.MethodPost {
					leave, err := k.Enter()
					if err != nil {
						g.fail(w, r.WithContext(ctx), err)
						return
					}
					defer leave()
				}
			}
		}
		if !ok {
			w.Header().Set("WWW-Authenticate", "Bearer")
			message := "Incorrect API key."
			if len(given) == 0 {
				message = "An API key is missing: send it as Authorization: Bearer KEY or X-API-Key: KEY."
			}
			g.fail(w, r, &wire.Error{Kind: wire.Unauthorized, Message: message})
			return
		}
		next.ServeHTTP(w, r.WithContext(wire.WithOwner(wire.WithClient(r.Context(), client), owner)))
	})
}

// addressBits is the length of the prefix of an IPv6 address that identifies a client: a subnet.
const addressBits = 64

// addressOf returns the client's address without the port.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap().WithZone(""); ip.Is6() {
		if subnet, err := ip.Prefix(addressBits); err == nil {
			return subnet.String()
		}
	}
	return ip.String()
}

// bringsKey reports whether one of the given keys is known, and returns its hash. Its time depends
// neither on the given keys nor on which one matches.
func bringsKey(given []string, sums [][sha256.Size]byte) (owner string, ok bool) {
	found := 0
	var hash [sha256.Size]byte
	for _, key := range given {
		sum := sha256.Sum256([]byte(key))
		for i := range sums {
			equal := subtle.ConstantTimeCompare(sum[:], sums[i][:])
			subtle.ConstantTimeCopy(equal, hash[:], sums[i][:])
			found |= equal
		}
	}
	return hex.EncodeToString(hash[:]), found == 1
}

// keysOf returns the keys in the headers of r.
func keysOf(r *http.Request) []string {
	var keys []string
	if scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") {
		keys = append(keys, strings.TrimSpace(key))
	}
	if key := strings.TrimSpace(r.Header.Get("X-Api-Key")); key != "" {
		keys = append(keys, key)
	}
	return keys
}
