package draft

// margin is how much faster a pass with guesses must be expected to be.
const margin = 1.03

// An Offer is the guesses for one text.
type Offer struct {
	Tokens []int32
	Match  int // how many tokens agreed before the first guess
	Odds   *Odds
	Take   int // set by Decide: how many of Tokens to verify

	chance float64 // that the guesses so far and the next one are right
	taken  int
}

// Decide sets how many tokens of each offer a pass should verify that has base tokens without them, for
// as many texts as yield a token each. At most most guesses are taken in all. all are the odds of all
// texts.
func Decide(costs *Costs, all *Odds, base, yield, most int, offers []Offer) {
	for i := range offers {
		o := &offers[i]
		o.Take, o.taken, o.chance = 0, 0, o.Odds.Of(o.Match, all)
	}
	if !costs.ready(base) {
		return
	}
	most = min(most, costs.reach(base)-base)
	tokens := float64(yield)
	best := margin * tokens / costs.seconds(base, base)
	for n := 1; n <= most; n++ {
		o := likeliest(offers)
		if o == nil {
			return
		}
		tokens += o.chance
		o.taken++
		o.chance *= o.Odds.Of(o.Match+o.taken, all)
		if rate := tokens / costs.seconds(base+n, base); rate > best {
			best = rate
			for i := range offers {
				offers[i].Take = offers[i].taken
			}
		}
	}
}

// likeliest is the offer whose next guess is most probably right; nil if all are taken.
func likeliest(offers []Offer) *Offer {
	var best *Offer
	for i := range offers {
		if o := &offers[i]; o.taken < len(o.Tokens) && (best == nil || o.chance > best.chance) {
			best = o
		}
	}
	return best
}
