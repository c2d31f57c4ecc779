# The machines of a site, made from an image of build-image.
ARG MACHINE
FROM ${MACHINE} AS bare
LABEL clusterctl.role=lab-site
COPY policy-rc.d /usr/sbin/policy-rc.d
# What is left is what a vendor's image has. What roles need beside it, they get through the site's proxy.
RUN apt-get -qy purge apparmor containerd curl docker.io iptables python3-requests runc \
    && apt-get -qy autoremove --purge \
    && apt-get -q update \
    && DEBIAN_FRONTEND=noninteractive apt-get -qy --no-install-recommends install cloud-init nftables \
    && apt-get clean && rm -rf /var/lib/apt/lists/* /var/lib/docker/* \
    # As old as a vendor's: what was emptied in this very hour Ansible would take for fresh.
    && touch -d 2026-01-01 /var/lib/apt/lists \
    && rm /usr/sbin/policy-rc.d
COPY sshd.conf /etc/ssh/sshd_config.d/site.conf
COPY cloud.cfg /etc/cloud/cloud.cfg.d/90-site.cfg
COPY nftables.conf /etc/nftables.conf
COPY site-init /usr/local/lib/clusterctl-lab/site-init
RUN systemctl enable nftables

# One that the site uses already: Docker's engine with images elsewhere, and a container of the site's own.
FROM bare AS engine
COPY policy-rc.d /usr/sbin/policy-rc.d
COPY repack /usr/local/lib/clusterctl-lab/
RUN apt-get -q update && /usr/local/lib/clusterctl-lab/repack \
    && DEBIAN_FRONTEND=noninteractive apt-get -qy --no-install-recommends install busybox-static iptables \
    && apt-get clean && rm -rf /var/lib/apt/lists/* /usr/sbin/policy-rc.d && touch -d 2026-01-01 /var/lib/apt/lists
COPY daemon.json /etc/docker/daemon.json
COPY foreign /usr/local/lib/clusterctl-lab/
COPY foreign.service /etc/systemd/system/site-monitor.service
RUN systemctl enable docker containerd site-monitor
