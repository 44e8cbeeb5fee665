package dispatch

import (
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/devicemap"
)

// TestSharesKeepToTheLimit: whatever the plan, the shares together are within the limit or the minimum,
// weights leave before the KV cache that sequences use, and a higher limit takes nothing away.
func TestSharesKeepToTheLimit(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		host := devicemap.DevicePlan{WeightsBytes: r.Int64N(1000), KVBytes: r.Int64N(500), StagingBytes: r.Int64N(300),
			ActivationBytes: r.Int64N(50), RequestBytes: r.Int64N(50), RuntimeBytes: r.Int64N(50)}
		least := shares{staging: r.Int64N(host.StagingBytes + 1), kv: r.Int64N(host.KVBytes + 1), requests: r.Int64N(host.RequestBytes + 1)}
		held := r.Int64N(host.KVBytes + 1)
		var before shares
		for limit := int64(-1); limit < host.Used()+100; limit += 1 + r.Int64N(200) {
			s := sharesUnder(host, least, held, limit)
			if got, most := s.sum(host), max(limit, least.sum(host)); got > most {
				t.Fatalf("%+v, minimum %+v: %+v takes %d of %d", host, least, s, got, most)
			}
			if limit >= host.Used() && s != (shares{weights: host.WeightsBytes, staging: host.StagingBytes, kv: host.KVBytes, requests: host.RequestBytes}) {
				t.Fatalf("%+v is not whole under a limit of %d: %+v", host, limit, s)
			}
			if s.kv < held && s.weights > 0 || s.weights < host.WeightsBytes && s.staging > least.staging || s.requests < host.RequestBytes && (s.weights > 0 || s.kv > least.kv) {
				t.Fatalf("%+v, minimum %+v, %d held, limit %d: wrong order: %+v", host, least, held, limit, s)
			}
			if s.kv < before.kv || s.weights < before.weights && s.kv == before.kv && s.staging == before.staging {
				t.Fatalf("%+v: %+v under a higher limit than %+v", host, s, before)
			}
			before = s
		}
	}
}
