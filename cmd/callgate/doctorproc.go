package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"callgate/gate/redact"
)

// loginHosts are hosts of providers that agents reach by a login, beside those
// of knownProviders.
var loginHosts = []string{
	"chatgpt.com", "api.githubcopilot.com", "api.individual.githubcopilot.com", "api.business.githubcopilot.com",
	"cloudcode-pa.googleapis.com", "api.cline.bot", "claude.ai",
}

// connections looks where an agent, and what it started, is connected to.
func (d *doctor) connections(ctx context.Context, pid int) {
	family, err := descendants(d.proc, pid)
	if err != nil {
		d.say(stateWarn, "connections", "look on Linux, as the agent's user or root", "they cannot be seen: %v", reasonOnly(err))
		return
	}
	remote := map[netip.AddrPort]bool{}
	unread := 0
	for _, p := range family {
		list, err := remotes(d.proc, p)
		if err != nil {
			unread++
			continue
		}
		for _, a := range list {
			remote[a] = true
		}
	}
	if unread == len(family) {
		d.say(stateWarn, "connections", "look on Linux, as the agent's user or root", "those of %d cannot be seen", pid)
		return
	}
	ours := d.gateAddresses()
	hosts := d.providerAddresses(ctx)
	var gated, local, other int
	past := map[string]bool{}
	for a := range remote {
		switch host := hosts[a.Addr()]; {
		case ours[a]:
			gated++
		case host != "":
			past[host] = true
		case a.Addr().IsLoopback():
			local++
		default:
			other++
		}
	}
	for _, h := range slices.Sorted(maps.Keys(past)) {
		d.say(stateFail, "connections", "start the agent with callgate run", "%d or what it started is connected to %s, past callgate", pid, h)
	}
	text := fmt.Sprintf("%d to callgate, %d to other hosts", gated, other)
	if local > 0 {
		text += fmt.Sprintf(", %d to other programs of this machine", local)
	}
	text += fmt.Sprintf(", in %d process", len(family))
	if len(family) != 1 {
		text += "es"
	}
	if gated == 0 && len(past) == 0 {
		text += "; an agent that waits for its user has none"
	}
	d.say(stateOK, "connections", "", "%s", text)
}

// gateAddresses are the addresses at which callgate answered.
func (d *doctor) gateAddresses() map[netip.AddrPort]bool {
	out := map[netip.AddrPort]bool{}
	for origin, err := range d.gates {
		u, uerr := url.Parse(origin)
		if err != nil || uerr != nil {
			continue
		}
		hosts := []string{u.Hostname()}
		if u.Hostname() == "localhost" {
			hosts = loopbackNames
		}
		for _, h := range hosts {
			if at, err := netip.ParseAddrPort(net.JoinHostPort(h, u.Port())); err == nil {
				out[netip.AddrPortFrom(at.Addr().Unmap(), at.Port())] = true
			}
		}
	}
	return out
}

// providerAddresses resolves the hosts of providers, as far as that works in a
// moment.
func (d *doctor) providerAddresses(ctx context.Context) map[netip.Addr]string {
	names := map[string]bool{}
	for _, h := range loginHosts {
		names[h] = true
	}
	urls := []string{}
	for _, p := range knownProviders {
		urls = append(urls, p.url)
	}
	if d.cfg != nil {
		for _, u := range d.cfg.Upstreams {
			urls = append(urls, u.URL)
		}
	}
	for _, raw := range urls {
		if u, err := url.Parse(raw); err == nil && u.Hostname() != "" {
			names[u.Hostname()] = true
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	out := map[netip.Addr]string{}
	for name := range names {
		wg.Go(func() {
			list, err := d.lookup(ctx, name)
			if err != nil {
				return // a host that is not found is not connected to
			}
			mu.Lock()
			defer mu.Unlock()
			for _, s := range list {
				if a, err := netip.ParseAddr(s); err == nil && !a.IsUnspecified() {
					out[a.Unmap()] = redact.Visible(name)
				}
			}
		})
	}
	wg.Wait()
	return out
}

// descendants are a process and all that it started and that still run.
func descendants(proc string, pid int) ([]int, error) {
	if _, err := os.Stat(filepath.Join(proc, strconv.Itoa(pid))); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, e := range entries {
		p, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if parent, ok := parentOf(proc, p); ok {
			children[parent] = append(children[parent], p)
		}
	}
	family := []int{pid}
	for i := 0; i < len(family); i++ {
		family = append(family, children[family[i]]...)
	}
	return family, nil
}

// parentOf reads a process's parent; its name, which may hold anything, ends
// with the last bracket.
func parentOf(proc string, pid int) (int, bool) {
	b, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, false
	}
	_, rest, ok := strings.Cut(string(b[max(strings.LastIndexByte(string(b), ')'), 0):]), ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(fields[1])
	return parent, err == nil
}

// remotes are the far ends of a process's TCP connections.
func remotes(proc string, pid int) ([]netip.AddrPort, error) {
	dir := filepath.Join(proc, strconv.Itoa(pid))
	fds, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return nil, err
	}
	inodes := map[string]bool{}
	for _, fd := range fds {
		to, err := os.Readlink(filepath.Join(dir, "fd", fd.Name()))
		if err != nil {
			continue // it was closed just now
		}
		if inode, ok := strings.CutPrefix(to, "socket:["); ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}
	var out []netip.AddrPort
	for _, table := range []string{"tcp", "tcp6"} {
		b, err := os.ReadFile(filepath.Join(dir, "net", table))
		if err != nil {
			continue // a system without IPv6
		}
		for _, line := range strings.Split(string(b), "\n") {
			f := strings.Fields(line)
			const established = "01"
			if len(f) < 10 || f[3] != established || !inodes[f[9]] {
				continue
			}
			if a, ok := parseProcAddr(f[2]); ok {
				out = append(out, a)
			}
		}
	}
	return out, nil
}

// parseProcAddr reads an address of the kernel's tables: hexadecimal words in
// the machine's order, and the port.
func parseProcAddr(s string) (netip.AddrPort, bool) {
	host, port, ok := strings.Cut(s, ":")
	if !ok {
		return netip.AddrPort{}, false
	}
	raw, err := hex.DecodeString(host)
	if err != nil || len(raw) != net.IPv4len && len(raw) != net.IPv6len {
		return netip.AddrPort{}, false
	}
	for w := 0; w < len(raw); w += 4 {
		slices.Reverse(raw[w : w+4])
	}
	a, ok := netip.AddrFromSlice(raw)
	p, err := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(p)), true
}
