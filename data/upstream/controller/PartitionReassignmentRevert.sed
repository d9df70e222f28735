# 5. An ISR that was empty before stays empty: the ELR, not the first replica, has the records.
s/if (isr.isEmpty()) {/if (isr.isEmpty() \&\& registration.isr.length != 0) {/
