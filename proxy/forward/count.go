package forward

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
)

// maxCounted is how many hosts are counted by name; the rest together.
const maxCounted = 512

// rest is the name of those that found no room.
const rest = "(others)"

// HostCount is how often other hosts were asked for.
type HostCount struct {
	Host               string
	Tunnelled, Refused int64
}

// counter counts by host. Its zero value is ready.
type counter struct {
	mu     sync.Mutex // guards what is below
	byHost map[string]*HostCount
}

// add counts one request and gives how many of that kind there were for the
// host.
func (c *counter) add(host string, refused bool) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byHost == nil {
		c.byHost = map[string]*HostCount{}
	}
	n := c.byHost[host]
	if n == nil && len(c.byHost) >= maxCounted {
		host = rest
		n = c.byHost[host]
	}
	if n == nil {
		n = &HostCount{Host: host}
		c.byHost[host] = n
	}
	if refused {
		n.Refused++
		return n.Refused
	}
	n.Tunnelled++
	return n.Tunnelled
}

// list gives the counts, those asked for most in front.
func (c *counter) list() []HostCount {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]HostCount, 0, len(c.byHost))
	for _, n := range c.byHost {
		out = append(out, *n)
	}
	slices.SortFunc(out, func(a, b HostCount) int {
		return cmp.Or(cmp.Compare(b.Tunnelled+b.Refused, a.Tunnelled+a.Refused), cmp.Compare(a.Host, b.Host))
	})
	return out
}

// end logs the counts, and only once.
func (c *counter) end(log *slog.Logger) {
	const most = 20
	list := c.list()
	for i, n := range list {
		if i == most {
			log.Info("more other hosts were asked for through the proxy", "hosts", len(list)-most)
			break
		}
		log.Info("another host was asked for through the proxy", "host", n.Host, "tunnelled", n.Tunnelled, "refused", n.Refused)
	}
	c.mu.Lock()
	c.byHost = nil
	c.mu.Unlock()
}

// Counts tells how often hosts that are not gated were asked for through the
// proxy, those asked for most in front. Hosts beyond a bound count together.
func (h *Handler) Counts() []HostCount { return h.counts.list() }

// Tunnels tells how many tunnels to other hosts are open.
func (h *Handler) Tunnels() int { return h.tunnels.count() }

// count counts a request for another host and logs the first, tenth, hundredth
// and so on.
func (h *Handler) count(p *plan) {
	n := h.counts.add(p.to.host, p.refusal != "")
	for n > 1 && n%10 == 0 {
		n /= 10
	}
	switch {
	case n != 1:
	case p.refusal != "":
		h.log.Info("another host is refused", "host", p.to.host, "port", p.to.port, "reason", p.refusal)
	default:
		h.log.Info("another host is tunnelled to, ungated", "host", p.to.host, "port", p.to.port)
	}
}
