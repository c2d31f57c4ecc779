# What stands between the machines and the world; made from an image of build-image.
ARG MACHINE
FROM ${MACHINE}
LABEL clusterctl.role=lab-site
COPY policy-rc.d /usr/sbin/policy-rc.d
RUN DEBIAN_FRONTEND=noninteractive apt-get -qy --no-install-recommends install nginx tinyproxy \
    && rm /etc/nginx/sites-enabled/default
COPY index.conf /etc/nginx/conf.d/index.conf
COPY gate-init /usr/local/bin/gate-init
CMD ["/usr/local/bin/gate-init"]
