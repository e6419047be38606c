// Package mitm is the certificate authority by which clients trust callgate in
// the place of a provider: it makes the authority, keeps it in two files, and
// issues short-lived certificates for single hosts. It knows cryptography and
// names; it must not know who asks or what is done with a connection.
//
// The authority's certificate holds name constraints: it is good for the hosts
// that were named when it was made and for no others, so that whoever steals
// the key cannot stand in for a bank. Go, OpenSSL and what is built on it
// (Node, Python, curl) keep to them; Java takes the certificate but passes the
// constraints of a root over. The extension is critical, so that what does not
// know it refuses the certificate.
package mitm

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

const (
	// Life is how long an authority is valid.
	Life = 5 * 365 * 24 * time.Hour
	// early is how far before now validity begins, for clients whose clock is
	// slow.
	early = time.Hour
)

// CA is an authority with its key. It is not changed once made, and safe for
// concurrent use.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority for those hosts: names, which cover what stands below
// them too, and literal addresses. Another host needs another authority.
func New(hosts []string, now time.Time) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("mitm: key: %w", err)
	}
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial,
		Subject: pkix.Name{
			Organization: []string{"callgate"},
			// Two authorities of one name would be mistaken for each other.
			CommonName: fmt.Sprintf("callgate local CA %x", serial.Bytes()[:4]),
		},
		NotBefore: now.Add(-early), NotAfter: now.Add(Life - early),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if err := constrain(t, hosts); err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("mitm: certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("mitm: certificate: %w", err)
	}
	return &CA{cert: cert, key: key}, nil
}

// constrain limits a certificate to hosts. A kind of name without any host is
// excluded as a whole: what is not mentioned would be free.
func constrain(t *x509.Certificate, hosts []string) error {
	t.PermittedDNSDomainsCritical = true
	for _, h := range hosts {
		name, addr, err := parse(h)
		if err != nil {
			return err
		}
		if name != "" {
			t.PermittedDNSDomains = append(t.PermittedDNSDomains, name)
			continue
		}
		ip := addr.AsSlice()
		t.PermittedIPRanges = append(t.PermittedIPRanges, &net.IPNet{IP: ip, Mask: net.CIDRMask(8*len(ip), 8*len(ip))})
	}
	slices.Sort(t.PermittedDNSDomains)
	t.PermittedDNSDomains = slices.Compact(t.PermittedDNSDomains)
	if len(t.PermittedDNSDomains)+len(t.PermittedIPRanges) == 0 {
		return errors.New("mitm: an authority for no host: name one at least")
	}
	if len(t.PermittedDNSDomains) == 0 {
		t.PermittedDNSDomains = []string{"none.invalid"} // a name that no host has (RFC 6761)
	}
	if len(t.PermittedIPRanges) == 0 {
		t.ExcludedIPRanges = []*net.IPNet{
			{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, {IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)},
		}
	}
	return nil
}

// parse reads a host: a name in small letters, or an address.
func parse(host string) (name string, addr netip.Addr, err error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" {
			return "", netip.Addr{}, fmt.Errorf("mitm: %q has a zone, which no certificate can name", host)
		}
		return "", addr.Unmap(), nil
	}
	if !validName(host) {
		return "", netip.Addr{}, fmt.Errorf("mitm: %q is no host name in small letters and no address", host)
	}
	return host, netip.Addr{}, nil
}

// validName reports whether a name may stand in a certificate.
func validName(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		ok := func(r rune) bool { return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' }
		if label == "" || len(label) > 63 || label[0] == '-' || strings.ContainsFunc(label, func(r rune) bool { return !ok(r) }) {
			return false
		}
	}
	return true
}

func serialNumber() (*big.Int, error) {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		return nil, fmt.Errorf("mitm: serial number: %w", err)
	}
	b[0] = b[0]&0x7f | 0x40 // positive, and of full length
	return new(big.Int).SetBytes(b), nil
}

// Certificate is the authority's own certificate, in DER.
func (c *CA) Certificate() []byte { return slices.Clone(c.cert.Raw) }

// Subject is the name that trust stores show.
func (c *CA) Subject() string { return c.cert.Subject.String() }

// Name is the part of the subject by which trust stores list it.
func (c *CA) Name() string { return c.cert.Subject.CommonName }

// Fingerprint is the SHA-256 of the certificate, in capital hex digits between
// colons as openssl prints it.
func (c *CA) Fingerprint() string {
	sum := sha256.Sum256(c.cert.Raw)
	h := strings.ToUpper(hex.EncodeToString(sum[:]))
	var b strings.Builder
	for i := 0; i < len(h); i += 2 {
		if i > 0 {
			b.WriteByte(':')
		}
		b.WriteString(h[i : i+2])
	}
	return b.String()
}

// Validity is the span of time in which the authority is good.
func (c *CA) Validity() (from, to time.Time) { return c.cert.NotBefore, c.cert.NotAfter }

// Hosts are the names and addresses that it may issue for.
func (c *CA) Hosts() []string {
	hosts := slices.Clone(c.cert.PermittedDNSDomains)
	for _, n := range c.cert.PermittedIPRanges {
		if a, ok := netip.AddrFromSlice(n.IP); ok {
			hosts = append(hosts, a.Unmap().String())
		}
	}
	return slices.DeleteFunc(hosts, func(h string) bool { return h == "none.invalid" })
}

// Covers reports whether the constraints leave room for a host.
func (c *CA) Covers(host string) bool {
	name, addr, err := parse(host)
	if err != nil {
		return false
	}
	if name == "" {
		return slices.ContainsFunc(c.cert.PermittedIPRanges, func(n *net.IPNet) bool { return n.Contains(addr.AsSlice()) })
	}
	return slices.ContainsFunc(c.cert.PermittedDNSDomains, func(d string) bool {
		return name == d || strings.HasSuffix(name, "."+d)
	})
}

// Expired reports whether the authority is of no use at that time.
func (c *CA) Expired(now time.Time) bool {
	return now.Before(c.cert.NotBefore) || now.After(c.cert.NotAfter)
}
